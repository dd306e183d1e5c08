// The list: filter, search, pages, keys. The filters are in the address, so a link shows the same.

const PAGE = 100;
const OUTCOMES = ["fail", "error", "skip", "pass"];
const MOST_TAG_CHOICES = 60;
const byId = (id) => document.getElementById(id);

const chosen = { q: "", only: new Set(), tag: "", page: 0, open: null };
let index = null;
let shown = [];

async function start() {
  try {
    index = await unpack("index");
  } catch (fault) {
    byId("notice").textContent = typeof DecompressionStream === "undefined"
      ? byId("notice").dataset.old
      : byId("notice").dataset.damaged;
    return;
  }
  index.rows.forEach((row, at) => {
    row.number = at;
    row.tags = (row.tags || []).map((tag) => index.tags[tag]);
    row.sought = [row.id, row.name, row.at, row.finding, row.words, ...row.tags.map(([name, value]) => `${name}: ${value}`)].filter(Boolean).join("\n").toLowerCase();
  });
  drawOverview();
  drawTools();
  fromAddress();
  choose();
  performance.mark("proctor-rows");
  showOpen();
  window.addEventListener("hashchange", () => {
    if (location.hash === "#cases") return;
    fromAddress();
    choose();
    showOpen();
  });
}

// --- what is chosen -------------------------------------------------------------------------------------------------

function fromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  chosen.q = given.get("q") || "";
  chosen.only = new Set((given.get("only") || "").split(",").filter((one) => OUTCOMES.includes(one) || one === "flaky"));
  chosen.tag = given.get("tag") || "";
  const wanted = given.get("case");
  const row = wanted === null ? undefined : index.rows.find((one) => one.id === wanted);
  chosen.open = row ? row.number : null;
  byId("search").value = chosen.q;
  byId("tag").value = chosen.tag;
  if (byId("tag").selectedIndex < 0) byId("tag").value = "";
  chosen.page = 0;
}

function toAddress() {
  const params = new URLSearchParams();
  if (chosen.q) params.set("q", chosen.q);
  if (chosen.only.size) params.set("only", [...chosen.only].join(","));
  if (chosen.tag) params.set("tag", chosen.tag);
  if (chosen.open !== null) params.set("case", index.rows[chosen.open].id);
  const text = params.toString();
  try {
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  } catch (fault) {
    // Some viewers show files in a frame without an address of its own; only the link is lost.
  }
}

const tagText = ([name, value]) => `${name}: ${value}`;

function fits(row, words, tag) {
  if (chosen.only.size && !chosen.only.has(row.outcome) && !(row.flaky && chosen.only.has("flaky"))) return false;
  if (tag && !row.tags.some((one) => tagText(one) === tag)) return false;
  return words.every((word) => row.sought.includes(word));
}

/** Filter rows and draw the first page, or the one with the open case. */
function choose() {
  const words = chosen.q.toLowerCase().split(/\s+/).filter(Boolean);
  shown = index.rows.filter((row) => fits(row, words, chosen.tag));
  const open = chosen.open === null ? -1 : shown.findIndex((row) => row.number === chosen.open);
  if (open >= 0) chosen.page = Math.floor(open / PAGE);
  for (const chip of byId("outcomes").children) chip.setAttribute("aria-pressed", String(chosen.only.has(chip.dataset.only)));
  drawRows();
}

function changed() {
  chosen.page = 0;
  chosen.open = null;
  toAddress();
  choose();
}

function showTag(name, value) {
  Object.assign(chosen, { q: "", tag: tagText([name, value]) });
  chosen.only.clear();
  byId("search").value = "";
  offerTag(chosen.tag);
  byId("tag").value = chosen.tag;
  changed();
  window.scrollTo(0, 0);
}

// --- the head of the page -------------------------------------------------------------------------------------------

function drawOverview() {
  const box = byId("overview");
  for (const [tag, values] of index.groups) box.append(folded(`By ${tag}`, () => groupTable(tag, values)));
  if (index.axes.length) {
    const scores = index.axes.map(([name, value]) => make("span", {}, textElement("b", name), " ", textElement("span", value)));
    box.append(make("p", { class: "facts" }, make("span", { class: "muted" }, "Score by axis"), scores));
  }
  const list = (title, lines) => lines.length && box.append(folded(`${title} (${number(lines.length)})`, () => make("ul", {}, lines.map((line) => textElement("li", line)))));
  list("Cost", index.cost ? [index.cost] : []);
  list("Not finished", index.missing);
  list("Warnings", index.warnings);
  list("Evidence without a matching case", index.unmatched);
}

function groupTable(tag, values) {
  const known = new Set(index.tags.map(tagText));
  return make(
    "ul",
    { class: "by-tag" },
    values.map(([value, rate, counts]) =>
      make(
        "li",
        {},
        make("button", { type: "button", class: "tag", disabled: !known.has(tagText([tag, value])), onclick: () => showTag(tag, value) }, value),
        rate && draw(rate, ""),
        draw(counts, ""),
      ),
    ),
  );
}

function drawTools() {
  const counts = { ...index.counts, flaky: index.rows.filter((row) => row.flaky).length };
  for (const name of [...OUTCOMES, "flaky"]) {
    if (!counts[name]) continue;
    const toggle = () => {
      if (!chosen.only.delete(name)) chosen.only.add(name);
      changed();
    };
    byId("outcomes").append(
      make("button", { type: "button", "data-only": name, "aria-pressed": "false", onclick: toggle }, name === "flaky" ? "" : mark(name)[0], ` ${name === "error" && counts[name] !== 1 ? "errors" : OUTCOME_NAMES[name] || name} `, make("b", {}, number(counts[name]))),
    );
  }
  const byName = new Map();
  for (const [name, value] of index.tags) byName.set(name, [...(byName.get(name) || []), value]);
  byId("tag").append(make("option", { value: "" }, "All tags"));
  for (const [name, values] of byName) {
    if (values.length > MOST_TAG_CHOICES) continue;
    byId("tag").append(make("optgroup", { label: name }, values.map((value) => make("option", { value: tagText([name, value]) }, tagText([name, value])))));
  }
  byId("tag-pick").hidden = byId("tag").options.length < 2;
  byId("tag").addEventListener("change", (event) => {
    chosen.tag = event.target.value;
    changed();
  });
  byId("search").addEventListener("input", (event) => {
    chosen.q = event.target.value;
    changed();
  });
}

/** A tag with too many values to be listed can still be the one chosen. */
function offerTag(text) {
  const pick = byId("tag");
  if (![...pick.options].some((option) => option.value === text)) pick.append(make("option", { value: text }, text));
  byId("tag-pick").hidden = false;
}

// --- rows -----------------------------------------------------------------------------------------------------------

function drawRows() {
  const from = chosen.page * PAGE;
  const rows = shown.slice(from, from + PAGE);
  byId("cases").setAttribute("start", String(from + 1));
  byId("cases").replaceChildren(...rows.map(drawRow));
  const count = shown.length;
  byId("shown").textContent = count > PAGE ? `${number(from + 1)}–${number(from + rows.length)} of ${number(count)} cases` : `${number(count)} ${count === 1 ? "case" : "cases"}`;
  byId("notice").textContent = index.rows.length ? "No case fits. Clear the search or choose fewer filters." : "No results.";
  byId("notice").hidden = shown.length > 0;
  drawPages();
  const open = byId("cases").querySelector(`[data-number="${chosen.open}"]`);
  if (open) toggleRow(open, true);
}

function showOpen() {
  const open = byId("cases").querySelector(`[data-number="${chosen.open}"]`);
  if (open) open.firstElementChild.scrollIntoView();
}

function drawRow(row) {
  const head = make(
    "button",
    { type: "button", class: "head", "aria-expanded": "false", onclick: (event) => toggleRow(event.currentTarget.parentElement) },
    mark(row.outcome),
    make(
      "span",
      { class: "titles" },
      make("span", { class: "names" }, textElement("b", row.id), textElement("span", row.name || "", "muted"), row.flaky && make("span", { class: "note" }, "flaky")),
      row.at && textElement("span", row.at, "muted at"),
      row.finding && textElement("span", row.finding, "finding"),
    ),
    make("span", { class: "numbers" }, row.rate && draw(row.rate, ""), row.score && make("span", {}, row.score), row.took && make("span", { class: "muted" }, row.took)),
  );
  return make("li", { class: `row ${row.outcome}`, "data-number": row.number }, head);
}

async function toggleRow(item, onlyOpen) {
  const head = item.firstElementChild;
  const body = item.children[1];
  const opened = head.getAttribute("aria-expanded") === "true";
  if (opened && onlyOpen) return;
  head.setAttribute("aria-expanded", String(!opened));
  const at = Number(item.dataset.number);
  if (opened) {
    body.remove();
    if (chosen.open === at) chosen.open = null;
    toAddress();
    return;
  }
  chosen.open = at;
  toAddress();
  const place = make("div", { class: "body", "aria-busy": "true" }, "…");
  item.append(place);
  const row = index.rows[at];
  try {
    const details = (await unpack(`packet-${row.packet}`))[row.place];
    place.replaceChildren(drawCase(details, showTag));
  } catch (fault) {
    place.replaceChildren(make("p", { class: "notice" }, "The details of this case cannot be read: the file was cut off or changed."));
  }
  place.removeAttribute("aria-busy");
}

function drawPages() {
  const last = Math.ceil(shown.length / PAGE) - 1;
  const box = byId("pages");
  box.hidden = last < 1;
  const go = (page) => () => {
    chosen.page = page;
    chosen.open = null;
    toAddress();
    drawRows();
    byId("cases").focus({ preventScroll: true });
    byId("cases").scrollIntoView();
  };
  const button = (label, page) => make("button", { type: "button", disabled: page < 0 || page > last || page === chosen.page, onclick: go(page) }, label);
  box.replaceChildren(button("First", 0), button("Previous", chosen.page - 1), make("span", {}, `page ${number(chosen.page + 1)} of ${number(last + 1)}`), button("Next", chosen.page + 1), button("Last", last));
}

// --- keys -----------------------------------------------------------------------------------------------------------

function step(by) {
  const heads = [...document.querySelectorAll("#cases > .row > .head")];
  const here = document.activeElement && document.activeElement.closest("#cases > .row");
  const at = here ? heads.indexOf(here.firstElementChild) : by > 0 ? -1 : heads.length;
  const next = heads[Math.min(heads.length - 1, Math.max(0, at + by))];
  if (next) next.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const search = byId("search");
  if (event.target === search) {
    if (event.key === "Escape" && chosen.q) {
      search.value = chosen.q = "";
      changed();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      step(1);
    }
    return;
  }
  if (event.target instanceof HTMLSelectElement) return;
  if (event.key === "/") {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
});

start();
