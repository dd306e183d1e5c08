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

const ago = (count, unit) => new Intl.RelativeTimeFormat(lang, { numeric: "always", style: "short" }).format(-Math.trunc(count), unit).replace(".", "");
const sameYear = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

// The last day as "12 min ago", earlier times with their date; the exact time is in the title.
function describe(at) {
  const minutes = (Date.now() - at) / 60000;
  if (minutes < -1) return zoned.format(at);
  if (minutes < 1) return "just now";
  if (minutes < 60) return ago(minutes, "minute");
  if (minutes < 1440) return ago(minutes / 60, "hour");
  return (at.getFullYear() === new Date().getFullYear() ? sameYear : zoned).format(at);
}
function localTimes() {
  for (const time of all("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    const text = time.closest("[data-exact]") ? zoned.format(at) : describe(at);
    if (time.textContent !== text) time.textContent = text;
    time.title = `${exact.format(at)} · ${time.dateTime}`;
  }
}
function addCopies() {
  // Of a rendered text, its copy as it was sent.
  for (const place of all("[data-copy]")) {
    if (!navigator.clipboard || place.querySelector(".copy")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText((place.querySelector(".as-sent pre") ?? place.querySelector("pre, code, .rich") ?? place).textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    place.append(button);
  }
}
const dress = () => { localTimes(); addCopies(); };
setInterval(localTimes, 60000);
dress();
document.addEventListener("swapped", dress);

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
// Menus close on Escape and on a click elsewhere; the current page of a scrolling row is in view.
document.addEventListener("click", (event) => { for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") for (const menu of all("details.menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); } });
const current = document.querySelector(".top nav [aria-current]"), row = current?.closest("ul");
if (row && row.scrollWidth > row.clientWidth) row.scrollLeft = current.offsetLeft - row.offsetLeft - 40;
opener.hidden = false;
const openHelp = () => { help.showModal(); help.querySelector("button").focus(); };
opener.addEventListener("click", openHelp);

function step(query, by) {
  const rows = all(query).filter((row) => row.checkVisibility());
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  const target = row.matches("a") || row.tabIndex === -1 && row.hasAttribute("tabindex") ? row : row.querySelector("a[data-span]") || row.querySelector("a") || row;
  target.focus();
  row.scrollIntoView({ block: "nearest" });
}
const follow = (query) => document.querySelector(query)?.click();
const KEYS = {
  "/": () => { const find = document.querySelector("main input[type=search]") ?? document.querySelector("input[type=search]"); find?.focus(); },
  j: () => step("[data-row]", 1),
  k: () => step("[data-row]", -1),
  n: () => (own("n") ? own("n").click() : step("[data-bad]", 1)),
  p: () => (own("p") ? own("p").click() : step("[data-bad]", -1)),
  u: () => follow("a[rel=up]"),
  N: () => follow("a[data-key=N]"),
  P: () => follow("a[data-key=P]"),
  "[": () => follow("a[rel=prev]"),
  "]": () => follow("a[rel=next]"),
  e: () => { const place = document.getElementById("evidence"); place?.focus(); place?.scrollIntoView(); },
  c: () => (document.querySelector("main [data-key=c]") ?? document.querySelector("[data-key=c]"))?.click(),
  "?": openHelp,
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
