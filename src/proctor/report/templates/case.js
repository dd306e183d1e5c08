// One case, drawn when it is opened: assertions on one side, the timeline on the other.

function drawCase(details, showTag) {
  const box = make("div", { class: "case" });
  if (details.about) box.append(said("p", details.about, "about"));
  const attempts = details.attempts;
  const first = Math.max(0, attempts.findIndex((attempt) => attempt.outcome === "fail" || attempt.outcome === "error"));
  const place = make("div", {});
  if (attempts.length > 1) box.append(attemptTabs(attempts, first, place));
  place.append(drawAttempt(attempts[first]));
  box.append(place);
  const origin = details.place && make("span", {}, "written at ", said("code", details.place));
  const tags = (details.tags || []).map(([name, value]) =>
    make("button", { type: "button", class: "tag", title: "Show only cases with this tag", onclick: () => showTag(name, value) }, `${name}: ${value}`),
  );
  if (origin || tags.length) box.append(make("p", { class: "facts" }, origin, tags));
  return box;
}

function attemptTabs(attempts, first, place) {
  const tabs = make("div", { class: "chips attempts", role: "group", "aria-label": "Attempts" });
  attempts.forEach((attempt, index) => {
    tabs.append(
      make(
        "button",
        {
          type: "button",
          "aria-pressed": String(index === first),
          onclick: (event) => {
            for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab === event.currentTarget));
            place.replaceChildren(drawAttempt(attempt));
          },
        },
        mark(attempt.outcome),
        ` attempt ${attempt.number}`,
      ),
    );
  });
  return tabs;
}

function drawAttempt(attempt) {
  const steps = new Map();
  const timeline = attempt.timeline
    ? make("ol", { class: "timeline" }, drawSteps(attempt.timeline, steps))
    : make("p", { class: "muted" }, attempt.no_timeline);
  const facts = attempt.facts.map(([name, value]) => make("span", {}, make("span", { class: "muted" }, `${name} `), said("span", value)));
  return make(
    "div",
    {},
    facts.length > 0 && make("p", { class: "facts" }, facts),
    attempt.remark && said("p", attempt.remark, "remark"),
    attempt.unknown && said("p", attempt.unknown, "remark"),
    attempt.axes && pairs("Score by axis", attempt.axes),
    attempt.extracted && pairs("Captured", attempt.extracted),
    make(
      "div",
      { class: attempt.timeline && attempt.timeline.length ? "columns" : "" },
      make("section", {}, make("h3", {}, "Assertions"), drawAssertions(attempt.assertions, steps)),
      make("section", {}, make("h3", {}, "What happened"), timeline, attempt.known && drawKnown(attempt.known), (attempt.rest || []).map(drawRest)),
    ),
  );
}

const pairs = (title, entries) =>
  make("p", { class: "facts" }, make("span", { class: "muted" }, title), entries.map(([name, value]) => make("span", {}, said("b", name), " ", said("span", value))));

const drawRest = ([name, value, pieces]) => folded(name, () => marked("pre", value, pieces), Boolean(pieces));

/** Which parts of the evidence were recorded, are none, or are not known and why. */
function drawKnown(known) {
  const row = ([name, status, why]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: status === "not known" ? "unknown" : "" }, status), said("td", why || "", "muted"));
  return folded("What was known", () => [
    make("p", { class: "facts" }, make("span", { class: "muted" }, "read as "), said("span", known.reader)),
    make("table", { class: "known" }, make("tbody", {}, known.parts.map(row))),
    make("ul", {}, (known.notes || []).map((note) => said("li", note, "muted"))),
  ]);
}

function drawAssertions(assertions, steps) {
  if (!assertions.length) return make("p", { class: "muted" }, "Nothing is asserted.");
  const worst = { fail: 0, error: 1, skip: 2, pass: 3 };
  const broken = assertions.filter((one) => one.outcome !== "pass").sort((a, b) => worst[a.outcome] - worst[b.outcome]);
  const passed = assertions.filter((one) => one.outcome === "pass");
  const numbers = new Map(assertions.map((one, index) => [one, index + 1]));
  const list = (some) => make("ul", { class: "assertions" }, some.map((one) => drawAssertion(one, steps, numbers.get(one))));
  if (!broken.length) return list(passed);
  const rest = passed.length && folded(`${passed.length} passed`, () => list(passed));
  return [list(broken), rest || ""];
}

function drawAssertion(one, steps, number) {
  return make(
    "li",
    { class: one.outcome, "data-assertion": number, tabindex: "-1" },
    make("div", { class: "title" }, mark(one.outcome), said("b", one.title), one.notes && said("span", one.notes, "note"), make("span", { class: "muted number" }, `#${number}`)),
    one.reason && said("p", one.reason, "reason"),
    one.votes && drawVotes(one.votes),
    one.comparisons && drawComparisons(one.comparisons),
    make(
      "p",
      { class: "facts" },
      make("span", { class: "muted" }, one.check),
      one.place && make("span", { title: one.path }, said("code", one.place)),
      one.marked && make("button", { type: "button", class: "pointer", onclick: (event) => show(event, `mark[data-first~="${number}"]`) }, "marked in the text"),
      (one.at || []).map((pointer) => drawPointer(pointer, steps)),
      one.more_at && make("span", { class: "muted" }, `and ${one.more_at} more places`),
    ),
    one.details && folded("details", () => said("pre", one.details)),
  );
}

function drawComparisons(rows) {
  const broken = rows.filter((row) => !row.holds);
  const held = rows.filter((row) => row.holds);
  const table = (some) => make("div", { class: "comparisons" }, some.map(drawComparison));
  if (!broken.length) return held.length > 3 ? folded(`${held.length} hold`, () => table(held)) : table(held);
  return make("div", {}, table(broken), held.length > 0 && folded(`${held.length} more hold`, () => table(held)));
}

function drawComparison(row) {
  const about = row.about && said("div", row.about, "what");
  if (row.remark !== undefined) return make("div", { class: "comparison" }, about, said("pre", row.remark));
  const side = (name, text) => make("div", { class: name }, make("span", { class: "side" }, name), said("pre", text));
  return make("div", { class: row.holds ? "comparison holds" : "comparison" }, about, make("div", { class: "sides" }, side("expected", row.expected), side("found", row.found)));
}

/** Every answer of a judge: who said what, and why. */
function drawVotes(votes) {
  const rows = votes.map((vote) => make("li", {}, mark(vote.outcome), vote.who && said("span", vote.who, "muted"), vote.score && make("span", {}, vote.score), said("span", vote.reason || "")));
  return folded(votes.length > 1 ? `${votes.length} answers of the judge` : "The judge's answer", () => make("ul", { class: "votes" }, rows));
}

/** A text, with the characters marked that assertions are about. Each mark leads back to its assertions. */
function marked(tag, text, pieces, name) {
  if (!pieces) return said(tag, text, name);
  const back = (number) => make("button", { type: "button", class: "back", "aria-label": `To assertion ${number}`, onclick: (event) => show(event, `li[data-assertion="${number}"]`) }, String(number));
  const draw = (piece) => (typeof piece === "string" ? piece : make("mark", { class: piece.kind, "data-first": (piece.first || []).join(" "), tabindex: "-1" }, piece.text, piece.of.map(back)));
  return make(tag, { class: name, dir: "auto" }, pieces.map(draw));
}

/** Go to what is meant, inside the same attempt; whatever it is folded into is opened. */
function show(event, query) {
  const root = event.currentTarget.closest(".case");
  // What is folded is drawn when it is first opened.
  for (const box of root.querySelectorAll("section > details")) {
    if (root.querySelector(query)) break;
    box.open = true;
    box.dispatchEvent(new Event("toggle"));
  }
  const target = root.querySelector(query);
  if (target) point(target);
}

function point(target) {
  for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  for (const other of document.querySelectorAll(".pointed")) other.classList.remove("pointed");
  target.classList.add("pointed");
  target.scrollIntoView({ block: "center" });
  target.focus({ preventScroll: true });
}

/** A place in the evidence; a button where the timeline shows it. */
function drawPointer(pointer, steps) {
  let target = pointer;
  while (target.length > 1 && !steps.has(target)) target = target.slice(0, Math.max(target.lastIndexOf("."), target.lastIndexOf("[")));
  const step = target.length > 1 && steps.get(target);
  if (!step) return make("code", { class: "muted" }, pointer);
  return make("button", { type: "button", class: "pointer", title: "Show it in the timeline", onclick: () => point(step) }, pointer);
}

function drawSteps(timeline, steps) {
  if (!timeline.length) return make("li", { class: "muted" }, "Nothing was recorded.");
  const longest = Math.max(1, ...timeline.map((step) => step.ms || 0));
  return timeline.map((step) => {
    const item = make("li", { class: `step ${step.kind}${step.error ? " broken" : ""}${step.inside ? " inside" : ""}`, tabindex: "-1" }, drawStep(step, longest));
    for (const pointer of step.at || []) steps.set(pointer, item);
    return item;
  });
}

const WHO = { user: "User", agent: "Agent", broken: "The run broke off", note: "" };

function drawStep(step, longest) {
  if (step.kind === "turn") return make("div", { class: "who" }, step.name, make("span", { class: "muted" }, step.facts.join(" · ")));
  const pieces = step.marked || {};
  if (step.kind in WHO) return [make("div", { class: "who" }, WHO[step.kind]), marked("pre", step.text, pieces.text, "bubble")];
  const name = make(
    "div",
    { class: "who" },
    make("span", { class: "muted" }, step.kind === "call" ? "tool " : "step "),
    said("code", step.name),
    step.server && said("span", step.server, "note"),
    step.type && said("span", step.type, "note"),
    step.status && step.status !== "success" && said("span", step.status, "note bad"),
    step.tokens && make("span", { class: "muted" }, step.tokens),
    took(step, longest),
  );
  const part = (label, text, bad, cut) => text && make("div", { class: bad ? "part bad" : "part" }, make("span", { class: "side" }, label), marked("pre", text, cut));
  if (step.kind === "call") {
    return [name, part("arguments", step.arguments, false, pieces.arguments), part(step.error_kind ? `error, ${step.error_kind}` : "error", step.error, true), foldedPart("result", step.result, false, pieces.result)];
  }
  return [name, part("error", step.error, true), foldedPart("output", step.output, false, pieces.output), foldedPart("input", step.input, true), foldedPart("parameters", step.parameters, true, pieces.parameters), (step.notes || []).map((note) => said("p", note, "muted"))];
}

/** A short value stands open, and one with marks; a long one waits behind its name. */
function foldedPart(label, text, closed, cut) {
  if (!text) return "";
  if (cut) return make("div", { class: "part" }, make("span", { class: "side" }, label), marked("pre", text, cut));
  const lines = text.split("\n").length;
  if (!closed && lines <= 12 && text.length <= 700) return make("div", { class: "part" }, make("span", { class: "side" }, label), said("pre", text));
  return folded(`${label}, ${lines > 1 ? `${lines} lines` : `${text.length.toLocaleString("en")} characters`}`, () => said("pre", text));
}

function took(step, longest) {
  if (!step.took) return "";
  const bar = make("span", { class: "length" });
  bar.style.width = `${Math.max(2, (step.ms / longest) * 48)}px`;
  return make("span", { class: "took" }, step.took, bar);
}
