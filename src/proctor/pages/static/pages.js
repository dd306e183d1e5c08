// What every page does beyond being read: times in the reader's zone, keys, questions before something is done, two boxes to tick.
const all = (query, within = document) => [...within.querySelectorAll(query)];

// The reader's own habits within the language of the page.
const lang = document.documentElement.lang;
const locale = navigator.languages.find((one) => one.split("-")[0] === lang) ?? lang;
const zoned = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long" });
// What the other modules of a page share. The browser lets the name of a policy be taken once.
const policy = window.trustedTypes?.createPolicy("proctor", { createHTML: (text) => text });
window.proctor = {
  // Our own page, escaped where it was made.
  parse: (text) => new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html"),
  number: (value) => value.toLocaleString(lang),
  gone(answer) {
    // The session ended or the object was deleted: reloading the page shows which.
    const is = answer.redirected || [403, 404].includes(answer.status);
    if (is) location.reload();
    return is;
  },
};

function localTimes() {
  for (const time of all("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    time.textContent = zoned.format(at);
    time.title = `${exact.format(at)} · ${time.dateTime}`;
  }
}
localTimes();
document.addEventListener("swapped", localTimes);

document.addEventListener("submit", (event) => {
  // Times are shown in the reader's zone, and one that is typed without a zone is in it too.
  for (const field of all("[data-zoned]", event.target)) {
    const [typed, day, hour] = field.value.trim().match(/^(\d{4}-\d\d-\d\d)(?:[T ]([\d:]+))?$/) ?? [];
    const at = new Date(`${day}T${hour ?? "00:00"}`);
    if (typed && !isNaN(at)) field.value = at.toISOString();
  }
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

for (const form of all("form[data-choose]")) {
  const boxes = all("input[type=checkbox]", form);
  const most = Number(form.dataset.choose);
  const bound = () => {
    const full = boxes.filter((box) => box.checked).length >= most;
    for (const box of boxes) box.disabled = full && !box.checked;
  };
  form.addEventListener("change", bound);
  bound();
}

// Keys: single letters, so that they can be switched off (WCAG 2.1.4).
const help = document.getElementById("help");
const opener = document.getElementById("help-open");
const wanted = document.getElementById("keys-on");
const readEnabled = () => { try { return localStorage.getItem("proctor.keys") !== "off"; } catch { return true; } };
wanted.checked = readEnabled();
wanted.addEventListener("change", () => { try { localStorage.setItem("proctor.keys", wanted.checked ? "on" : "off"); } catch { /* only for now */ } });
opener.hidden = false;
opener.addEventListener("click", () => help.showModal());

function step(query, by) {
  const rows = all(query).filter((row) => row.checkVisibility());
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  const target = row.matches("a") || row.tabIndex === -1 && row.hasAttribute("tabindex") ? row : row.querySelector("a") || row;
  target.focus();
  row.scrollIntoView({ block: "nearest" });
}
const follow = (query) => document.querySelector(query)?.click();
const KEYS = {
  "/": () => { const find = document.querySelector("input[type=search]"); if (find) find.focus(); else follow("[data-key='/']"); },
  j: () => step("[data-row]", 1),
  k: () => step("[data-row]", -1),
  n: () => step("[data-bad]", 1),
  p: () => step("[data-bad]", -1),
  u: () => follow("a[rel=up]"),
  "[": () => follow("a[rel=prev]"),
  "]": () => follow("a[rel=next]"),
  e: () => { const place = document.getElementById("evidence"); place?.focus(); place?.scrollIntoView(); },
  c: () => (document.querySelector("main [data-key=c]") ?? document.querySelector("[data-key=c]"))?.click(),
  "?": () => help.showModal(),
};
// What a page has keys of its own for: buttons and links that name them.
const own = (key) => all("[data-key]").find((place) => place.dataset.key === key && place.checkVisibility());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || help.open || !wanted.checked) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = KEYS[event.key] ?? (own(event.key) && (() => own(event.key).click()));
  if (act) {
    event.preventDefault();
    act();
  }
});
