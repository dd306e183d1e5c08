// Editing the text of a case: marks at their place, indentation, brackets, find, and names of checks to choose from.
// The text area keeps its value, caret and undo; marks are drawn in a layer below it.
const form = document.querySelector("form.editor"), text = document.getElementById("text"), texts = form.dataset;
const pane = text.parentElement, layer = pane.querySelector(".layer"), rows = layer.appendChild(document.createElement("div"));
const place = document.getElementById("place"), list = document.getElementById("problems");
const NAMES = [...document.querySelectorAll("#check-names option")].map((one) => [one.value, one.textContent]);
const OPEN = "([{", CLOSE = ")]}", FAR = 20000, MOST_FOUND = 1000, MOST_PROPOSED = 8;
let lines = [], starts = [], problems = new Map(), found = [], now = -1, pair = [], leaving = "", proposed = [], chosen = -1;

function make(name, className, content = "") {
  return Object.assign(document.createElement(name), { className, textContent: content });
}
function index() {
  let start = 0;
  lines = text.value.split("\n");
  starts = lines.map((line) => { const mine = start; start += line.length + 1; return mine; });
}
function lineOf(offset) {
  let low = 0, high = starts.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (starts[middle] <= offset) low = middle; else high = middle - 1; }
  return low;
}
// The letters of the layer are those of the text by the style sheet alone, so that both change in the same moment when a window becomes narrow.
const metrics = () => { const style = getComputedStyle(text); return { tall: parseFloat(style.lineHeight), top: parseFloat(style.paddingTop), left: parseFloat(style.paddingLeft) }; };

// --- the layer: of the lines that are seen, what is marked; the text itself is there for its width alone -------------
function marksOf(at) {
  const start = starts[at], end = start + lines[at].length, marks = [];
  const add = (from, to, kind) => { if (from >= start && to <= end && from < to) marks.push([from - start, to - start, kind]); };
  found.forEach(([from, to], number) => add(from, to, number === now ? "found now" : "found"));
  for (const one of pair) add(one, one + 1, "pair");
  const problem = problems.get(at + 1);
  if (problem) {
    const from = [...lines[at]].slice(0, problem.column - 1).join("").length;
    const to = from + (lines[at].slice(from).match(/^[^\s:,]+/)?.[0].length ?? 0);
    // A match or a bracket comes before it.
    if (!marks.some((mark) => mark[0] < to && mark[1] > from)) add(start + from, start + to, "wrong-part");
  }
  return marks.sort((a, b) => a[0] - b[0]);
}
function drawRow(at) {
  const row = make("div", problems.has(at + 1) ? "row bad" : "row");
  let done = 0;
  for (const [from, to, kind] of marksOf(at)) {
    if (from < done) continue;
    const mark = make("span", kind);
    mark.append(make("i", "", lines[at].slice(from, to)));
    row.append(make("i", "", lines[at].slice(done, from)), mark);
    done = to;
  }
  row.append(make("i", "", lines[at].slice(done)));
  if (problems.has(at + 1)) row.append(make("span", "message", `✕ ${problems.get(at + 1).message}`));
  return row;
}
function draw() {
  const { tall, top, left } = metrics();
  const first = Math.max(0, Math.floor((text.scrollTop - top) / tall)), last = Math.min(lines.length, first + Math.ceil(text.clientHeight / tall) + 2);
  rows.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, number) => drawRow(first + number)));
  rows.style.transform = `translate(${left - text.scrollLeft}px, ${top + first * tall - text.scrollTop}px)`;
}
function caretPlace(offset) {
  const { tall, top, left } = metrics(), at = lineOf(offset), ruler = make("i", "ruler", lines[at].slice(0, offset - starts[at]));
  layer.append(ruler);
  const x = left + ruler.getBoundingClientRect().width - text.scrollLeft;
  ruler.remove();
  return { x, y: top + at * tall - text.scrollTop, tall };
}
function reveal(offset) {
  const { x, y, tall } = caretPlace(offset);
  if (y < 0 || y > text.clientHeight - 2 * tall) text.scrollTop += y - text.clientHeight / 3;
  if (x < 0 || x > text.clientWidth - 40) text.scrollLeft += x - text.clientWidth / 2;
}

// --- the problem at the caret ----------------------------------------------------------------------------------
function findPair() {
  const value = text.value, caret = text.selectionStart;
  if (caret !== text.selectionEnd) return [];
  for (const at of [caret - 1, caret]) {
    const one = value[at], opens = OPEN.indexOf(one ?? " "), closes = CLOSE.indexOf(one ?? " ");
    if (opens < 0 && closes < 0) continue;
    const step = opens >= 0 ? 1 : -1, other = opens >= 0 ? CLOSE[opens] : OPEN[closes];
    for (let to = at + step, deep = 1; to >= 0 && to < value.length && Math.abs(to - at) < FAR; to += step) {
      deep += value[to] === one ? 1 : value[to] === other ? -1 : 0;
      if (!deep) return [at, to];
    }
  }
  return [];
}
function look() {
  const problem = problems.get(lineOf(text.selectionStart) + 1);
  const words = leaving === "announced" ? texts.textLeave : proposed.length ? texts.textProposed.replace("{count}", proposed.length) : problem ? `${lineOf(text.selectionStart) + 1}: ${problem.message}` : "";
  if (place.textContent !== words) place.textContent = words;
  const wanted = findPair();
  if (`${wanted}` !== `${pair}`) { pair = wanted; draw(); }
}

// --- changes, by the browser's own command: so they can be undone --------------------------------------------------
function put(start, end, string) {
  text.focus();
  text.setSelectionRange(start, end);
  if (start === end && !string) return;
  if (document.execCommand(string ? "insertText" : "delete", false, string)) return;
  text.setRangeText(string, start, end, "end");
  text.dispatchEvent(new Event("input", { bubbles: true }));
}
function shift(outwards) {
  const from = text.selectionStart, to = text.selectionEnd, first = lineOf(from), last = Math.max(first, lineOf(to > from ? to - 1 : to));
  if (!outwards && first === last) return put(from, to, " ".repeat(2 - ((from - starts[first]) % 2)));
  const before = lines.slice(first, last + 1), after = before.map((line) => (outwards ? line.replace(/^( {1,2}|\t)/, "") : line && `  ${line}`));
  if (`${before}` === `${after}`) return;
  const start = starts[first], head = after[0].length - before[0].length, all = after.join("\n").length - before.join("\n").length;
  put(start, start + before.join("\n").length, after.join("\n"));
  text.setSelectionRange(Math.max(start, from + head), Math.max(start, to + all));
}
function breakLine(event) {
  const from = text.selectionStart, before = lines[lineOf(from)].slice(0, from - starts[lineOf(from)]);
  const lead = before.match(/^ */)[0] + (/[:[{]\s*$/.test(before) ? "  " : "");
  if (!lead) return;
  event.preventDefault();
  put(from, text.selectionEnd, `\n${lead}`);
  reveal(text.selectionStart);
}

// --- names to choose from --------------------------------------------------------------------------------------------
const options = make("ul", "proposals");
options.id = "proposals"; options.hidden = true;
options.setAttribute("role", "listbox"); options.setAttribute("aria-label", texts.textNames);
pane.append(options);
text.setAttribute("aria-controls", "proposals"); text.setAttribute("aria-autocomplete", "list");

function closeProposals() {
  proposed = []; chosen = -1; options.hidden = true;
  text.removeAttribute("aria-activedescendant");
}
function propose(requested) {
  closeProposals();
  const caret = text.selectionStart, line = lines[lineOf(caret)], before = line.slice(0, caret - starts[lineOf(caret)]);
  const word = before.match(/[\w-]*$/)[0].replace(/^-+/, ""), ahead = before.slice(0, before.length - word.length);
  const fits = /(^|\s)- *["'{]?$|[[{,] *["']?$|\b(type|target|check|assert)["']?: *["']?$/.test(ahead);
  if (caret !== text.selectionEnd || (!requested && (word.length < 2 || !fits))) return;
  const low = word.toLowerCase(), own = new Map(NAMES);
  if (requested) for (const [other] of text.value.matchAll(/[A-Za-z][\w-]{3,60}/g)) if (other !== word && !own.has(other) && own.size < 5000) own.set(other, "");
  const names = [...own].filter(([name]) => name.startsWith(low) || (low.length > 2 && name.toLowerCase().includes(low)));
  names.sort((a, b) => b[0].startsWith(low) - a[0].startsWith(low));
  if (!names.length || (names.length === 1 && names[0][0] === word)) return;
  proposed = names.slice(0, MOST_PROPOSED).map(([name]) => ({ name, start: caret - word.length, end: caret, colon: /- *$/.test(ahead) && !line.slice(before.length).trim() && NAMES.some(([known]) => known === name) }));
  options.replaceChildren(...proposed.map(({ name }, number) => {
    const row = make("li", "", "");
    row.id = `proposal-${number}`; row.setAttribute("role", "option"); row.setAttribute("aria-selected", "false");
    row.append(make("code", "", name), make("span", "muted", own.get(name)));
    return row;
  }));
  options.hidden = false;
  const { x, y, tall } = caretPlace(caret - word.length);
  options.style.left = `${Math.max(0, Math.min(x, pane.clientWidth - options.offsetWidth - 8))}px`;
  options.style.top = `${y + tall + options.offsetHeight > pane.clientHeight && y > options.offsetHeight ? y - options.offsetHeight : y + tall}px`;
}
function choose(number) {
  chosen = (number + proposed.length) % proposed.length;
  [...options.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === chosen)));
  options.children[chosen].scrollIntoView({ block: "nearest" });
  text.setAttribute("aria-activedescendant", `proposal-${chosen}`);
}
function take(number) {
  const { name, start, end, colon } = proposed[Math.max(0, number)];
  closeProposals();
  put(start, end, colon ? `${name}: ` : name);
  closeProposals();
}
options.addEventListener("pointerdown", (event) => {
  const row = event.target.closest("li");
  if (row) { event.preventDefault(); take([...options.children].indexOf(row)); }
});

// --- find --------------------------------------------------------------------------------------------------------------
const bar = make("div", "find-bar"), wanted = make("input", ""), count = make("span", "muted");
bar.hidden = true; bar.setAttribute("role", "search"); count.setAttribute("role", "status");
Object.assign(wanted, { type: "search", id: "find-text", autocomplete: "off", spellcheck: false });
wanted.setAttribute("aria-label", texts.textFind);
const button = (label, sign, act) => { const one = make("button", "", sign); one.type = "button"; one.setAttribute("aria-label", label); one.title = label; one.addEventListener("click", act); return one; };
bar.append(wanted, count, button(texts.textPrevious, "↑", () => step(-1)), button(texts.textNext, "↓", () => step(1)), button(texts.textClose, "×", closeFind));
form.querySelector(".code").before(bar);

function search() {
  found = [];
  if (wanted.value && !bar.hidden) {
    const pattern = new RegExp(wanted.value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
    for (const one of text.value.matchAll(pattern)) { if (found.length === MOST_FOUND) break; found.push([one.index, one.index + one[0].length]); }
  }
  if (now >= found.length) now = found.length - 1;
  count.textContent = !wanted.value ? "" : found.length ? texts.textFound.replace("{at}", now + 1).replace("{count}", found.length) : texts.textNone;
  draw();
}
function step(by) {
  if (!found.length) return;
  now = (now + by + found.length) % found.length;
  text.setSelectionRange(...found[now]);
  reveal(found[now][0]);
  search();
}
function openFind() {
  const picked = text.value.slice(text.selectionStart, text.selectionEnd);
  bar.hidden = false;
  if (picked && !picked.includes("\n")) wanted.value = picked;
  wanted.focus(); wanted.select();
  lookFrom(text.selectionStart);
}
function lookFrom(offset) {
  now = -1; search();
  now = Math.max(found.findIndex(([from]) => from >= offset) - 1, -1);
  step(1);
}
function closeFind() {
  bar.hidden = true; now = -1; search(); text.focus();
}
wanted.addEventListener("input", () => lookFrom(now < 0 ? text.selectionStart : found[now]?.[0] ?? 0));
wanted.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); }
  else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); closeFind(); }
});

// --- keys --------------------------------------------------------------------------------------------------------------
text.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const command = event.ctrlKey || event.metaKey;
  if (proposed.length && !command && !event.altKey) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); choose(chosen < 0 && by < 0 ? proposed.length - 1 : chosen + by); return; }
    if (event.key === "Tab" && !event.shiftKey || event.key === "Enter" && chosen >= 0) { event.preventDefault(); take(chosen); return; }
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); closeProposals(); look(); return; }
  }
  if (event.key === "Escape" && leaving !== "announced") { event.stopPropagation(); leaving = "announced"; look(); return; }
  if (event.key === "Tab" && !command && !event.altKey && !leaving) { event.preventDefault(); shift(event.shiftKey); return; }
  if (!["Tab", "Shift", "Escape", "Control", "Meta", "Alt"].includes(event.key)) leaving = "";
  if (command && event.key.toLowerCase() === "f" && !event.shiftKey) { event.preventDefault(); openFind(); }
  else if (command && event.key === " ") { event.preventDefault(); propose(true); look(); }
  else if (event.key === "Enter" && !command && !event.altKey && !event.shiftKey) breakLine(event);
});
// Who comes by Tab and goes on by Tab wants to pass; from the first other key, or a click, on Tab indents.
text.addEventListener("focus", () => { leaving = text.matches(":active") ? "" : "passing"; });
text.addEventListener("pointerdown", () => { leaving = ""; });
text.addEventListener("blur", () => { leaving = ""; closeProposals(); look(); });
text.addEventListener("input", (event) => {
  index();
  if (!bar.hidden) search();
  if (event.inputType?.startsWith("insert") || event.inputType === "deleteContentBackward") propose(false); else closeProposals();
  draw(); look();
});
text.addEventListener("scroll", () => { if (proposed.length) closeProposals(); draw(); });
document.addEventListener("selectionchange", () => { if (document.activeElement === text) look(); });
new ResizeObserver(draw).observe(text);

// The list of problems is written by the service or by `editor.js`; here each is shown at its line.
function readProblems() {
  problems = new Map();
  for (const link of list.querySelectorAll("[data-line]")) {
    const message = link.parentElement.textContent.replace(link.textContent, "").trim();
    if (!problems.has(Number(link.dataset.line))) problems.set(Number(link.dataset.line), { column: Number(link.dataset.column), message });
  }
  draw(); look();
}
new MutationObserver(readProblems).observe(list, { childList: true });
document.getElementById("text-keys").hidden = false;
index(); readProblems();
