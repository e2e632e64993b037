/**
 * Markdown as models write it, from text to a tree of blocks. Pure, and never
 * HTML: tags in the text are text.
 *
 * The subset: paragraphs, headings (#), bullet, numbered and task lists, block
 * quotes, fenced code, tables, rules; inside them what markdown-inline.js knows.
 * Left out on purpose: raw HTML, images (an address in a reply must not be
 * fetched), indented code, underlined headings, reference links.
 *
 * A block is `{ type, raw, ... }`; `raw` is its source, and two blocks of the same
 * source look the same. Inline text is kept as text: it is parsed when shown.
 */

/** Quotes and lists deeper than this are paragraphs. */
const MAX_DEPTH = 8;

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
const TASK = /^\[([ xX])\][ \t]+(?=\S)/;
const DELIMITER_CELL = /^:?-+:?$/;

/**
 * The blocks of `text`, each with `offset`, where it starts. `previous`: the result
 * for a text that may be the beginning of this one; its blocks are used again
 * as far as more text cannot have changed them.
 */
export function parseMarkdown(text, previous = null) {
  const source = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
  let kept = [];
  let start = 0;
  // What is appended changes the last block, and can join it to the one before.
  if (previous && previous.blocks.length > 2 && source.startsWith(previous.source)) {
    kept = previous.blocks.slice(0, -2);
    start = previous.blocks.at(-2).offset;
  }
  const lines = source.slice(start).split("\n");
  const offsets = [];
  let offset = start;
  for (const line of lines) {
    offsets.push(offset);
    offset += line.length + 1;
  }
  const blocks = parseLines(lines, 0).map(({ line, ...block }) => ({
    ...block,
    offset: offsets[line],
  }));
  return { source, blocks: [...kept, ...blocks] };
}

function parseLines(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, end] = readBlock(lines, at, depth);
    blocks.push({ ...block, line: at, raw: lines.slice(at, end).join("\n") });
    at = end;
  }
  return blocks;
}

/** The block that starts at a line, and the line behind it. */
function readBlock(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return readCode(lines, at, fence);
  if (HEADING.test(line)) return [heading(line), at + 1];
  if (RULE.test(line)) return [{ type: "rule" }, at + 1];
  if (depth < MAX_DEPTH) {
    if (QUOTE.test(line)) return readQuote(lines, at, depth);
    if (ITEM.test(line)) return readList(lines, at, depth);
  }
  return readTable(lines, at) ?? readParagraph(lines, at);
}

function isBlank(line) {
  return line.trim() === "";
}

/** Whether a line begins a block even directly below a paragraph. */
function interrupts(line) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) {
    return true;
  }
  const item = ITEM.exec(line);
  if (!item) return false;
  const number = /^\d/.test(item[2]) && !/^1[.)]/.test(item[2]);
  return !number && !isBlank(line.slice(item[0].length));
}

function readParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines[end])) {
    if (isTableAt(lines, end)) break;
    end += 1;
  }
  const text = lines
    .slice(at, end)
    .map((line) => line.trimStart())
    .join("\n")
    .trimEnd();
  return [{ type: "paragraph", text }, end];
}

function heading(line) {
  const [mark, signs] = HEADING.exec(line);
  let text = line.slice(mark.length).trim();
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  if (end === 0 || (end < text.length && /\s/.test(text[end - 1]))) {
    text = text.slice(0, end).trimEnd();
  }
  return { type: "heading", level: signs.length, text };
}

function readCode(lines, at, [, indent, fence, info]) {
  const closing = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const text = lines
    .slice(at + 1, end)
    .map((line) => withoutIndent(line, indent.length))
    .join("\n");
  const language = info.trim().split(/\s/, 1)[0];
  return [{ type: "code", language, text }, Math.min(end + 1, lines.length)];
}

function readQuote(lines, at, depth) {
  const inner = [];
  let end = at;
  while (end < lines.length) {
    const line = lines[end];
    if (QUOTE.test(line)) inner.push(line.replace(QUOTE, ""));
    else if (!isBlank(line) && !interrupts(line) && !isBlank(inner.at(-1))) {
      inner.push(line);
    } else break;
    end += 1;
  }
  return [{ type: "quote", blocks: parseLines(inner, depth + 1) }, end];
}

function readList(lines, at, depth) {
  const first = marker(lines[at]);
  const items = [];
  let loose = false;
  let end = at;
  while (end < lines.length) {
    const mark = marker(lines[end]);
    // A rule may be made of the bullets of this list.
    if (!mark || mark.kind !== first.kind || RULE.test(lines[end])) break;
    const [inner, next, parted] = readItem(lines, end, mark);
    const blocks = parseLines(inner, depth + 1);
    const raw = lines.slice(end, next).join("\n");
    items.push({ ...task(blocks), raw });
    loose ||= parted && blocks.length > 1;
    end = next;
    while (end < lines.length && isBlank(lines[end])) end += 1;
    const follows = end < lines.length ? marker(lines[end]) : null;
    if (end > next) {
      if (follows?.kind !== first.kind || RULE.test(lines[end])) {
        end = next;
        break;
      }
      loose = true;
    }
  }
  const { ordered, number } = first;
  return [{ type: "list", ordered, start: number, loose, items }, end];
}

/** The lines of an item without their indent, and the line behind it. */
function readItem(lines, at, { indent, width }) {
  const inner = [withoutIndent(lines[at], width, true)];
  let end = at + 1;
  let parted = false;
  let margin = width;
  while (end < lines.length) {
    const line = lines[end];
    const blank = isBlank(line);
    const before = isBlank(inner.at(-1));
    const depth = blank ? 0 : indentOf(line);
    // Models indent what is nested by two, whatever the width of the marker.
    const nested = depth >= margin || (depth >= indent + 2 && ITEM.test(line));
    if (nested) margin = Math.min(margin, depth);
    const lazy = !before && !interrupts(line) && !ITEM.test(line);
    if (!blank && !nested && !lazy) break;
    if (!blank && before && inner.some((known) => !isBlank(known))) parted = true;
    inner.push(blank ? "" : withoutIndent(line, Math.min(depth, margin)));
    end += 1;
  }
  while (isBlank(inner.at(-1)) && inner.length > 1) {
    inner.pop();
    end -= 1;
  }
  return [inner, end, parted];
}

function marker(line) {
  const found = ITEM.exec(line);
  if (!found) return null;
  const [whole, , sign] = found;
  const indent = indentOf(line);
  const rest = line.slice(whole.length);
  const gap = rest.length - rest.trimStart().length;
  const ordered = /^\d/.test(sign);
  return {
    kind: ordered ? sign.at(-1) : sign,
    ordered,
    number: ordered ? Number.parseInt(sign, 10) : null,
    indent,
    width: indent + sign.length + (isBlank(rest) || gap > 4 ? 1 : gap),
  };
}

/** An item that starts with a box is a task: `checked` is true or false. */
function task(blocks) {
  const [first] = blocks;
  const box = first?.type === "paragraph" ? TASK.exec(first.text) : null;
  if (!box) return { blocks, checked: null };
  const text = first.text.slice(box[0].length);
  return { blocks: [{ ...first, text }, ...blocks.slice(1)], checked: box[1] !== " " };
}

function isTableAt(lines, at) {
  if (at + 1 >= lines.length || !lines[at].includes("|")) return false;
  if (!/^[ \t|:-]+$/.test(lines[at + 1]) || !lines[at + 1].includes("-")) return false;
  const rule = cells(lines[at + 1]);
  if (!rule.every((cell) => DELIMITER_CELL.test(cell))) return false;
  return rule.length === cells(lines[at]).length;
}

function readTable(lines, at) {
  if (!isTableAt(lines, at)) return null;
  const header = cells(lines[at]);
  const aligns = cells(lines[at + 1]).map((cell) => {
    const [start, end] = [cell.startsWith(":"), cell.endsWith(":")];
    if (start && end) return "center";
    return end ? "end" : start ? "start" : null;
  });
  const rows = [];
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) {
    const row = cells(lines[end]).slice(0, header.length);
    rows.push([...row, ...Array(header.length - row.length).fill("")]);
    end += 1;
  }
  return [{ type: "table", header, aligns, rows }, end];
}

/** The cells of a row; an escaped bar does not part them, in code neither. */
function cells(line) {
  const row = line.trim();
  const found = [];
  let cell = "";
  for (let at = row[0] === "|" ? 1 : 0; at < row.length; at += 1) {
    const character = row[at];
    if (character === "\\" && row[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (character === "|") {
      found.push(cell.trim());
      cell = "";
    } else {
      cell += character;
    }
  }
  if (cell.trim() !== "" || found.length === 0) found.push(cell.trim());
  return found;
}

/** Columns before the first character; a tab reaches the next multiple of four. */
function indentOf(line) {
  let columns = 0;
  for (const character of line) {
    if (character === " ") columns += 1;
    else if (character === "\t") columns += 4 - (columns % 4);
    else break;
  }
  return columns;
}

/** A line without its first columns: blank ones, or (`marked`) its list marker. */
function withoutIndent(line, columns, marked = false) {
  let at = 0;
  let column = 0;
  while (at < line.length && column < columns) {
    const tab = line[at] === "\t";
    if (!marked && !tab && line[at] !== " ") break;
    column += tab ? 4 - (column % 4) : 1;
    at += 1;
  }
  return " ".repeat(Math.max(0, column - columns)) + line.slice(at);
}
