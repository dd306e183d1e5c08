// The editor of cases: line numbers, and the problems of the document while it is typed.
const form = document.querySelector("form.editor");
const text = document.getElementById("text");
const gutter = form.querySelector(".gutter");
const title = document.getElementById("problems-state");
const list = document.getElementById("problems");
const readAs = document.getElementById("read-as");
const WAIT_MS = 400;
let marked = new Set([...list.querySelectorAll("[data-line]")].map((link) => Number(link.dataset.line)));
let latest = 0, timer, shown = "";

function number() {
  const lines = text.value.split("\n").length;
  const wanted = `${lines}/${[...marked]}`;
  if (wanted === shown) return;
  shown = wanted;
  gutter.textContent = Array.from({ length: lines }, (_, at) => (marked.has(at + 1) ? "✕ " : "") + (at + 1)).join("\n") + "\n";
  gutter.scrollTop = text.scrollTop;
}
text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
new ResizeObserver(() => { gutter.style.height = `${text.offsetHeight}px`; gutter.scrollTop = text.scrollTop; }).observe(text);

function go(line, column) {
  const lines = text.value.split("\n");
  const at = Math.min(line, lines.length) - 1;
  const start = lines.slice(0, at).reduce((sum, each) => sum + each.length + 1, 0);
  // Columns count characters; the text counts halves of some of them.
  const before = [...lines[at]].slice(0, Math.max(0, column - 1)).join("").length;
  text.focus();
  text.setSelectionRange(start + before, start + lines[at].length);
  text.scrollTop = Math.max(0, (at - 5) * parseFloat(getComputedStyle(text).lineHeight));
}
list.addEventListener("click", (event) => {
  const link = event.target.closest("[data-line]");
  if (!link) return;
  event.preventDefault();
  go(Number(link.dataset.line), Number(link.dataset.column));
});

function make(name, content, options = {}) {
  const element = document.createElement(name);
  element.textContent = content;
  return Object.assign(element, options);
}
// Characters that hide or turn text are written out.
const plain = (words) => words.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

function showFindings(found) {
  marked = new Set(found.problems.map((problem) => problem.line).filter(Boolean));
  const mark = document.querySelector(`#m-${found.valid ? "pass" : "fail"}`).id;
  title.querySelector("use").setAttribute("href", `#${mark}`);
  title.querySelector("svg").setAttribute("class", `mark ${found.valid ? "pass" : "fail"}`);
  const words = found.valid ? form.dataset.textOk : form.dataset.textProblems;
  if (title.querySelector("span").textContent !== words) title.querySelector("span").textContent = words;
  const cases = found.case_count === 1 ? form.dataset.textCase : form.dataset.textCases.replace("{count}", found.case_count);
  readAs.textContent = found.valid ? `${found.dialect} · ${cases}` : "";
  text.setAttribute("aria-invalid", String(!found.valid));
  list.replaceChildren(...found.problems.map((problem) => {
    const row = make("li", "", { className: problem.level });
    if (problem.line) {
      const link = make("a", `${problem.line}:${problem.column || 1}`, { href: "#text" });
      Object.assign(link.dataset, { line: problem.line, column: problem.column || 1 });
      row.append(link, " ");
    }
    row.append(make("bdi", plain(problem.message)));
    if (problem.nearest?.length) {
      const near = make("span", ` ${form.dataset.textNearest}`, { className: "nearest" });
      for (const word of problem.nearest) near.append(" ", make("code", plain(word)));
      row.append(near);
    }
    return row;
  }));
  number();
}

async function check() {
  const mine = ++latest;
  const body = new URLSearchParams({ proof: form.elements.proof.value, document: text.value, dialect: form.elements.dialect.value });
  try {
    const answer = await fetch(form.dataset.check, { method: "POST", body, redirect: "manual" });
    const found = answer.ok ? await answer.json() : null;
    // An answer to an older text.
    if (mine !== latest) return;
    if (found) showFindings(found);
    else readAs.textContent = form.dataset.textAway;
  } catch {
    if (mine === latest) readAs.textContent = form.dataset.textAway;
  }
}
function soon() {
  number();
  clearTimeout(timer);
  timer = setTimeout(check, WAIT_MS);
}
text.addEventListener("input", soon);
form.elements.dialect.addEventListener("change", soon);

// A page that is left by mistake takes what was typed along.
let sent = false;
// A rejected draft is not saved yet.
const first = form.dataset.dirty ? undefined : text.value;
form.addEventListener("submit", () => { sent = true; });
addEventListener("beforeunload", (event) => { if (!sent && text.value !== first) event.preventDefault(); });
number();
