/**
 * Keeps the newest text in sight while the reader is at the end, and leaves a
 * reader who scrolled up alone, with a button that leads back.
 */

/** Pixels from the end that still count as the end. */
const NEAR = 48;

export class Scroller {
  #element;
  #button;
  #following = true;
  #top = 0;

  constructor(element, button) {
    this.#element = element;
    this.#button = button;
    element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    button.addEventListener("click", () => {
      this.follow();
      element.focus({ preventScroll: true });
    });
    new ResizeObserver(() => this.rendered()).observe(element);
  }

  /** Go to the end and stay there. */
  follow() {
    this.#following = true;
    this.rendered();
  }

  /** The content may have grown. */
  rendered() {
    if (this.#following) this.#element.scrollTop = this.#element.scrollHeight;
    this.#button.hidden = this.#following || this.#distance() <= NEAR;
  }

  #scrolled() {
    const { scrollTop } = this.#element;
    // Text that arrived since moves the end away too: only going up is leaving.
    if (this.#distance() <= NEAR) this.#following = true;
    else if (scrollTop < this.#top) this.#following = false;
    this.#top = scrollTop;
    this.#button.hidden = this.#following;
  }

  #distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.#element;
    return scrollHeight - scrollTop - clientHeight;
  }
}
