/**
 * Put text on the clipboard; returns whether that worked. The modern way exists on
 * https and localhost alone, the old one everywhere.
 */
export async function copyText(text, document) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text, document);
  }
}

function copyBySelection(text, document) {
  const active = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "ds-hidden";
  document.body.append(area);
  area.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    done = false;
  }
  area.remove();
  active?.focus();
  return done;
}
