"use strict";
// How the page is built: elements with text in them, never markup from text. Joined with the other scripts into one.

const MARKS = { pass: "✓", fail: "✗", error: "!", skip: "–" };
const WORDS = { pass: "passed", fail: "failed", error: "errors", skip: "skipped" };
const ONE = { pass: "passed", fail: "failed", error: "error", skip: "skipped" };

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
function said(tag, text, name) {
  return make(tag, { class: name, dir: "auto" }, text);
}

function mark(outcome) {
  return make("span", { class: `mark ${outcome}`, role: "img", "aria-label": ONE[outcome] }, MARKS[outcome]);
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

const percent = (share) => `${(share * 100).toFixed(share > 0 && share < 1 ? 1 : 0).replace(/\.0$/, "")} %`;

/** A pass rate: a bar, a whisker over the interval, and the same in words. */
function rateBar(rate) {
  const share = rate.passed / rate.decided;
  const words = `${rate.passed.toLocaleString("en")} of ${rate.decided.toLocaleString("en")} passed`;
  const interval = `${percent(rate.low)} to ${percent(rate.high)}`;
  const fill = make("span", { class: "fill" });
  fill.style.width = `${share * 100}%`;
  const whisker = make("span", { class: "whisker" });
  whisker.style.left = `${rate.low * 100}%`;
  whisker.style.width = `${(rate.high - rate.low) * 100}%`;
  return make(
    "span",
    { class: "rate", title: `${words}, ${percent(share)}; 95 % interval (Wilson) ${interval}` },
    make("span", { class: "track", "aria-hidden": "true" }, fill, whisker),
    make("span", { class: "rate-words" }, words, make("span", { class: "muted" }, ` · ${percent(share)} (${interval})`)),
  );
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
