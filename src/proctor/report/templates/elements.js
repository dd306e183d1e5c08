"use strict";
// How the page is built: elements with text in them, never markup from text. Joined with the other scripts into one.

const SHAPES = document.querySelector(".sprite").namespaceURI;
const PICTURES = new Set(["svg", "use", "path", "rect", "circle", "line"]);
const OUTCOME_NAMES = { pass: "passed", fail: "failed", error: "error", skip: "skipped" };

const number = (count) => count.toLocaleString("en");

/** An element: make("p", { class: "x", onclick: f }, "text", otherElement). Empty children are left out. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false && child !== ""));
  return element;
}

/** Text of strangers: it keeps its own direction of writing. */
function textElement(tag, text, name) {
  return make(tag, { class: name, dir: "auto" }, text);
}

/** What was drawn when the report was written: text, or a list: tag and classes, attributes where there are any, children. Ids and links stay inside of their attempt. */
function draw(node, prefix) {
  if (typeof node === "string") return node;
  const [head, ...children] = node;
  const [tag, ...look] = head.split(" ");
  const attributes = children.length && typeof children[0] === "object" && !Array.isArray(children[0]) ? children.shift() : {};
  const element = PICTURES.has(tag) ? document.createElementNS(SHAPES, tag) : document.createElement(tag);
  if (look.length) element.setAttribute("class", look.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "href" && !value.startsWith("#")) continue;
    element.setAttribute(name, name === "id" ? prefix + value : name === "href" && tag === "a" ? `#${prefix}${value.slice(1)}` : value);
  }
  element.append(...children.map((child) => draw(child, prefix)));
  return element;
}

function mark(outcome) {
  return [draw([`svg mark ${outcome}`, { "aria-hidden": "true" }, ["use", { href: `#m-${outcome}` }]], ""), make("span", { class: "hidden" }, `${OUTCOME_NAMES[outcome]}: `)];
}

/** Details that are drawn when they are first opened. */
function folded(title, draw, open) {
  const box = make("details", {}, make("summary", {}, title));
  let drawn = false;
  const fill = () => {
    if (!drawn && box.open) {
      drawn = true;
      box.append(...[draw()].flat());
    }
  };
  box.addEventListener("toggle", fill);
  if (open) {
    box.open = true;
    fill();
  }
  return box;
}

const unpacked = new Map();

/** The JSON of a packet in this file; each is read once. */
function unpack(id) {
  if (!unpacked.has(id)) unpacked.set(id, read(id));
  return unpacked.get(id);
}

async function read(id) {
  let block = document.getElementById(id);
  if (!block && document.readyState === "loading") {
    // A long file is still arriving; the packets stand at its end.
    await new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
    block = document.getElementById(id);
  }
  const text = atob(block.textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
