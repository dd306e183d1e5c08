// One case, drawn when it is opened: what was drawn for it when the report was written, and the choice of an attempt.

function drawCase(details, showTag) {
  const box = make("div", { class: "case" });
  if (details.about) box.append(textElement("p", details.about, "about pre"));
  const attempts = details.attempts;
  const first = Math.max(0, attempts.findIndex((attempt) => attempt.outcome === "fail" || attempt.outcome === "error"));
  const place = make("div", {});
  if (attempts.length > 1) box.append(attemptTabs(attempts, first, place));
  place.append(drawAttempt(attempts[first]));
  place.addEventListener("click", follow);
  box.append(place);
  const origin = details.place && make("span", {}, "Source ", textElement("code", details.place));
  const tags = (details.tags || []).map(([name, value]) =>
    make("button", { type: "button", class: "tag", title: "Show only cases with this tag", onclick: () => showTag(name, value) }, `${name}: ${value}`),
  );
  if (origin || tags.length) box.append(make("p", { class: "facts" }, origin, tags));
  return box;
}

function attemptTabs(attempts, first, place) {
  const tabs = make("div", { class: "chips attempts", role: "group", "aria-label": "Attempts of this case" });
  attempts.forEach((attempt, index) => {
    const show = (event) => {
      for (const tab of tabs.children) tab.setAttribute("aria-pressed", String(tab === event.currentTarget));
      place.replaceChildren(drawAttempt(attempt));
    };
    tabs.append(make("button", { type: "button", "aria-pressed": String(index === first), onclick: show }, mark(attempt.outcome), ` Attempt ${attempt.number}`));
  });
  return tabs;
}

let drawn = 0;

function drawAttempt(attempt) {
  drawn += 1;
  return make("div", { class: "attempt" }, attempt.view.map((node) => draw(node, `d${drawn}-`)));
}

/** Follow a link inside an attempt without changing the address, which holds the filters. */
function follow(event) {
  const link = event.target.closest("a[href^='#']");
  if (!link) return;
  event.preventDefault();
  const target = document.getElementById(link.getAttribute("href").slice(1));
  if (target) point(target);
}

function point(target) {
  for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  for (const other of document.querySelectorAll(".pointed")) other.classList.remove("pointed");
  target.classList.add("pointed");
  target.scrollIntoView({ block: "center" });
  target.focus({ preventScroll: true });
}
