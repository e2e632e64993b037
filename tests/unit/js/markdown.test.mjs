import assert from "node:assert/strict";
import { test } from "node:test";

import { MarkdownView } from "../../../django_streams/static/django_streams/markdown-dom.js";
import { safeHref } from "../../../django_streams/static/django_streams/markdown-inline.js";
import { parseMarkdown } from "../../../django_streams/static/django_streams/markdown.js";
import { container } from "./dom.mjs";
import { numbers } from "./support.mjs";

function html(text, options) {
  const root = container();
  new MarkdownView(root).update(text, options);
  return root.inner
    .replaceAll(' target="_blank" rel="noopener noreferrer nofollow"', "")
    .replaceAll(/<figure.*?<pre[^>]*>(.*?)<\/pre><\/figure>/gs, "<pre>$1</pre>")
    .replaceAll(/<div class="ds-table"[^>]*>(.*?)<\/div>/gs, "$1");
}

const CASES = {
  "paragraphs are parted by blank lines": ["a\nb\n\nc", "<p>a\nb</p><p>c</p>"],
  "headings stand two levels below the page's": [
    "# One\n## Two ##\n####### no\n#no",
    "<h3>One</h3><h4>Two</h4><p>####### no\n#no</p>",
  ],
  "emphasis nests": [
    "**bold *both* bold** ~~gone~~ __b__ _i_",
    "<p><strong>bold <em>both</em> bold</strong> <del>gone</del> <strong>b</strong> <em>i</em></p>",
  ],
  "three stars are both": ["***x***", "<p><em><strong>x</strong></em></p>"],
  "underscores inside words are letters": ["snake_case_name", "<p>snake_case_name</p>"],
  "stars between spaces are stars": ["2 * 3 * 4", "<p>2 * 3 * 4</p>"],
  "bold works without spaces around it": ["这是**强调。**文字", "<p>这是<strong>强调。</strong>文字</p>"],
  "what is not closed is text": ["**a *b", "<p>**a *b</p>"],
  "inline code is exact": ["`a*b*` and `` ` ``", "<p><code>a*b*</code> and <code>`</code></p>"],
  "escapes take the meaning away": ["\\*a\\* \\` 1\\. \\a", "<p>*a* ` 1. \\a</p>"],
  "tags are text": ["<b>a</b> <script>x</script>", "<p>&lt;b>a&lt;/b> &lt;script>x&lt;/script></p>"],
  "a line break is known in its three forms": ["a  \nb\\\nc<br>d", "<p>a<br>b<br>c<br>d</p>"],
  "the common entities are characters": ["&lt;a&gt; &amp; &copy;", "<p>&lt;a> &amp; &amp;copy;</p>"],
  "a link": ['[a *b*](https://x.example/(y) "t")', '<p><a href="https://x.example/(y)">a <em>b</em></a></p>'],
  "an address alone is a link, without the sentence's end": [
    "See https://x.example/a_b. (https://y.example/)",
    '<p>See <a href="https://x.example/a_b">https://x.example/a_b</a>. (<a href="https://y.example/">https://y.example/</a>)</p>',
  ],
  "an address in angle brackets": ["<mailto:a@b.example>", '<p><a href="mailto:a@b.example">mailto:a@b.example</a></p>'],
  "a link that may not be followed is its text": ["[a](javascript:alert(1)) [b](data:text/html,x)", "<p>a b</p>"],
  "links do not nest": ["[a [b](https://x.example/) c](https://y.example/)", '<p>[a <a href="https://x.example/">b</a> c](<a href="https://y.example/">https://y.example/</a>)</p>'],
  "an image is its text with a link": ["![alt](https://x.example/i.png)", '<p>!<a href="https://x.example/i.png">alt</a></p>'],
  "brackets without a target are text": ["[1, 2] [x]", "<p>[1, 2] [x]</p>"],
  "a tight list": ["- a\n- b\n  c", "<ul><li><span>a</span></li><li><span>b\nc</span></li></ul>"],
  "a loose list": ["- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
  "nested lists": [
    "1. a\n  - b\n    - c\n2. d",
    "<ol><li><span>a</span><ul><li><span>b</span><ul><li><span>c</span></li></ul></li></ul></li><li><span>d</span></li></ol>",
  ],
  "a list keeps its first number": ["3. a\n4. b", '<ol start="3"><li><span>a</span></li><li><span>b</span></li></ol>'],
  "numbers go on behind a code block": [
    "1. a\n```\nx\n```\n2. b",
    '<ol><li><span>a</span></li></ol><pre><code>x</code></pre><ol start="2"><li><span>b</span></li></ol>',
  ],
  "code inside an item": ["- a\n\n  ```\n  x\n  ```", "<ul><li><p>a</p><pre><code>x</code></pre></li></ul>"],
  "another bullet is another list": ["- a\n* b", "<ul><li><span>a</span></li></ul><ul><li><span>b</span></li></ul>"],
  "tasks": [
    "- [ ] a\n- [x] b",
    '<ul><li class="ds-task"><input type="checkbox" disabled=""></input><span>a</span></li><li class="ds-task"><input type="checkbox" disabled="" checked=""></input><span>b</span></li></ul>',
  ],
  "a year does not begin a list inside a paragraph": ["It was\n1999. Then", "<p>It was\n1999. Then</p>"],
  "quotes hold blocks": ["> # a\n> - b\nc", "<blockquote><h3>a</h3><ul><li><span>b\nc</span></li></ul></blockquote>"],
  "fenced code is exact": ["```py title\n  a\n\n\t*b*\n```\nc", "<pre><code>  a\n\n\t*b*</code></pre><p>c</p>"],
  "a fence ends with one as long": ["~~~~\n~~~\n~~~~", "<pre><code>~~~</code></pre>"],
  "code that is not closed reaches the end": ["```\na\nb", "<pre><code>a\nb</code></pre>"],
  "a rule": ["a\n\n---\n* * *", "<p>a</p><hr><hr>"],
  "a table": [
    "| a | b |\n|:-:|--:|\n| 1 | `x\\|y` |\n| 2 |",
    '<table><thead><tr><th scope="col" class="ds-align-center">a</th><th scope="col" class="ds-align-end">b</th></tr></thead><tbody><tr><td class="ds-align-center">1</td><td class="ds-align-end"><code>x|y</code></td></tr><tr><td class="ds-align-center">2</td><td class="ds-align-end"></td></tr></tbody></table>',
  ],
  "a bar alone is no table": ["a | b\nc | d", "<p>a | b\nc | d</p>"],
  "lines may end as on Windows": ["# a\r\nb\r\n", "<h3>a</h3><p>b</p>"],
  "nothing is nothing": ["\n \n", ""],
};

for (const [name, [text, expected]] of Object.entries(CASES)) {
  test(name, () => assert.equal(html(text), expected));
}

const OPEN = {
  "bold that is being written is bold": ["a **b c", "<p>a <strong>b c</strong></p>"],
  "code that is being written is code": ["a `b", "<p>a <code>b</code></p>"],
  "half a marker is not shown": ["**a*", "<p><strong>a</strong></p>"],
  "a marker that opens nothing yet is not shown": ["a **", "<p>a </p>"],
  "half a link is its text": ["[a b](https://x.exa", "<p>a b</p>"],
  "a star inside a word waits for its partner": ["2*3", "<p>2*3</p>"],
  "only the last block is open": ["**a\n\n**b", "<p>**a</p><p><strong>b</strong></p>"],
  "the last item of a list is open": ["- *a\n- *b", "<ul><li><span>*a</span></li><li><span><em>b</em></span></li></ul>"],
};

for (const [name, [text, expected]] of Object.entries(OPEN)) {
  test(name, () => assert.equal(html(text, { open: true }), expected));
}

test("only a few schemes can be followed, however they are spelt", () => {
  for (const address of ["https://a.example", "HTTP://a", "mailto:a@b", "tel:1", "/path", "#x", "a"]) {
    assert.equal(safeHref(address), address);
  }
  for (const address of [
    "javascript:alert(1)",
    " JavaScript:alert(1)",
    "java\tscript:alert(1)",
    "\u0001javascript:alert(1)",
    "vbscript:x",
    "data:text/html,x",
    "file:///etc/passwd",
    "blob:https://a.example/x",
    "https://[",
  ]) {
    assert.equal(safeHref(address), null, address);
  }
});

const PIECES = [
  "a", "word ", " ", "\n", "\n\n", "*", "**", "_", "`", "```", "```py\n", "~~", "# ", "- ", "1. ",
  "2) ", "  ", "    ", "> ", "|", "|-|-|\n", "| a | b |\n", "[", "](", ")", "](/x)", "\\", "<br>",
  "https://a.example/b", "---\n", "[x] ", "&lt;", "\t", "+", "漢字", "😀",
];

function randomText(next) {
  return Array.from({ length: 1 + next(60) }, () => PIECES[next(PIECES.length)]).join("");
}

test("word by word or at once, the end looks the same", () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const next = numbers(seed);
    const text = randomText(next);
    const root = container();
    const view = new MarkdownView(root);
    for (let at = 0; at < text.length; at += 1 + next(5)) {
      view.update(text.slice(0, at), { open: true });
    }
    view.update(text);
    const whole = container();
    new MarkdownView(whole).update(text);
    assert.equal(root.inner, whole.inner, `seed ${seed}: ${JSON.stringify(text)}`);
  }
});

test("what has been read before is not parsed again", () => {
  const first = parseMarkdown("# a\n\nb\n\nc\n\nd");
  const second = parseMarkdown("# a\n\nb\n\nc\n\nd e", first);
  assert.equal(second.blocks[0], first.blocks[0]);
  assert.equal(second.blocks[1], first.blocks[1]);
  assert.deepEqual(second.blocks, parseMarkdown("# a\n\nb\n\nc\n\nd e").blocks);
});

test("what stands above stays the same element while text arrives", () => {
  const root = container();
  const view = new MarkdownView(root);
  view.update("# a\n\n- b\n- c", { open: true });
  const [heading, list] = root.children;
  const [item] = list.children;
  view.update("# a\n\n- b\n- c\n- d\n\n```\nx", { open: true });
  assert.equal(root.children[0], heading);
  assert.equal(root.children[1], list);
  assert.equal(list.children[0], item);
  const [, code] = root.children[2].children;
  view.update("# a\n\n- b\n- c\n- d\n\n```\nx\ny", { open: true });
  assert.equal(root.children[2].children[1], code);
  assert.equal(code.textContent, "x\ny");
});

test("no reply is so twisted that it freezes the page", { timeout: 10_000 }, () => {
  const many = 20_000;
  for (const piece of [
    "*", "**", "*a", "*a ", "_a_", "`", "`a", "``a`", "[", "[a](", "[a](b \"", "](", "<", "<br", "&",
    "\\", "~~a", "> ", "- ", "1. ", "|", "|a", "#", "# ", "    ", "\n", "\n\n", "***a**", "*_", "[[]]",
    "https://", "(", "- a\n", "> a\n", "|a|b|\n|-|-|\n",
  ]) {
    html(piece.repeat(many / piece.length), { open: true });
  }
});
