/** As much of a document as the Markdown view needs, written out as HTML. */

class Node {
  parent = null;

  remove() {
    const { parent } = this;
    if (!parent) return;
    parent.children.splice(parent.children.indexOf(this), 1);
    this.parent = null;
  }

  replaceWith(node) {
    const { parent } = this;
    const index = parent.children.indexOf(this);
    parent.children[index] = node;
    node.parent = parent;
    this.parent = null;
  }
}

class Text extends Node {
  constructor(data) {
    super();
    this.data = data;
  }

  appendData(data) {
    this.data += data;
  }

  get textContent() {
    return this.data;
  }

  toString() {
    return this.data.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  }
}

class Element extends Node {
  children = [];
  attributes = new Map();

  constructor(document, name) {
    super();
    this.ownerDocument = document;
    this.name = name;
  }

  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }

  append(...nodes) {
    for (const given of nodes) {
      const node = typeof given === "string" ? new Text(given) : given;
      node.remove();
      node.parent = this;
      this.children.push(node);
    }
  }

  get textContent() {
    return this.children.map((child) => child.textContent).join("");
  }

  get inner() {
    return this.children.join("");
  }

  toString() {
    const attributes = [...this.attributes].map(([name, value]) => ` ${name}="${value}"`);
    if (this.name === "br" || this.name === "hr") return `<${this.name}>`;
    return `<${this.name}${attributes.join("")}>${this.inner}</${this.name}>`;
  }
}

export class Document {
  createElement(name) {
    return new Element(this, name);
  }

  createTextNode(data) {
    return new Text(data);
  }
}

export const container = () => new Document().createElement("div");
