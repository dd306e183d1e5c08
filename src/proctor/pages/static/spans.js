// The tree of spans: a window over many rows that are fetched while scrolling, and the selected span next to it without a reload.
const box = document.getElementById("span-box");
const { parse, gone, number } = window.proctor;
const status = document.getElementById("span-place");

function begin() {
  let list = document.getElementById("spans"), before, after, fetching = false, wanted, selecting = 0;
  const height = list.firstElementChild.getBoundingClientRect().height;
  document.getElementById("span-paging")?.remove();
  [before, after] = [document.createElement("div"), document.createElement("div")];
  box.prepend(before);
  box.append(after);
  const first = () => Number(list.dataset.first), visible = () => Number(list.dataset.visible), size = () => Number(list.dataset.size);

  function place() {
    before.style.height = `${first() * height}px`;
    after.style.height = `${Math.max(0, visible() - first() - list.children.length) * height}px`;
  }
  function showPlace() {
    const top = Math.trunc(box.scrollTop / height), rows = Math.ceil(box.clientHeight / height);
    status.textContent = status.dataset.text.replace("{first}", number(top + 1)).replace("{last}", number(Math.min(visible(), top + rows))).replace("{visible}", number(visible()));
  }
  async function load(address) {
    const answer = await fetch(address, { cache: "no-store" });
    if (gone(answer)) return;
    if (!answer.ok) throw new Error(String(answer.status));
    return parse(await answer.text());
  }
  function swapRows(page) {
    const fresh = page?.getElementById("spans"), focused = document.activeElement?.closest(".span")?.id;
    if (!fresh) return;
    const kind = document.activeElement?.className;
    list.replaceWith(document.adoptNode(fresh));
    list = fresh;
    place();
    if (focused) (document.getElementById(focused)?.querySelector(kind === "turn" ? ".turn" : ".name"))?.focus({ preventScroll: true });
  }
  function showTarget() {
    const at = [...list.children].findIndex((row) => row.classList.contains("current"));
    if (at < 0) return;
    const top = (first() + at) * height;
    if (top < box.scrollTop || top + height > box.scrollTop + box.clientHeight) box.scrollTop = top - 4 * height;
  }
  function look() {
    wanted = undefined;
    showPlace();
    const top = Math.trunc(box.scrollTop / height), rows = Math.ceil(box.clientHeight / height);
    // One request at a time: fast scrolling fetches the final position only.
    if (fetching || top >= first() && Math.min(visible(), top + rows) <= first() + list.children.length) return;
    const next = Math.max(0, Math.min(visible() - size(), top - Math.trunc((size() - rows) / 2)));
    fetching = true;
    load(`${list.dataset.address}&from=${next}&part=rows`).then((page) => { swapRows(page); fetching = false; look(); }, () => { fetching = false; status.textContent = status.dataset.lost; setTimeout(look, 2000); });
  }
  async function select(address) {
    const mine = ++selecting, [query, hash] = address.split("?")[1].split("#");
    const row = document.getElementById(hash ?? ""), key = document.activeElement?.dataset.key;
    try {
      // A row that is not loaded comes with its surroundings.
      const page = await load(`?${query}&part=${row ? "span" : "all"}`), pane = page?.getElementById("span-pane");
      if (!pane || mine !== selecting) return;
      if (row) {
        const last = list.querySelector(".current");
        last?.classList.remove("current");
        last?.querySelector("[aria-current]")?.removeAttribute("aria-current");
        row.classList.add("current");
        row.querySelector(".name").setAttribute("aria-current", "true");
      } else swapRows(page);
      document.getElementById("span-pane").replaceWith(document.adoptNode(pane));
      history.replaceState(null, "", `?${query}`);
      document.dispatchEvent(new Event("swapped"));
      showTarget();
      status.textContent = document.getElementById("span").textContent;
      if (key) document.querySelector(`#span-pane [data-key=${key}]`)?.focus({ preventScroll: true });
      // One below the other: what was selected is brought into view.
      if (pane.getBoundingClientRect().top > innerHeight - 80) pane.scrollIntoView({ block: "nearest" });
    } catch { location.assign(address); }
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-span], a.turn");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const address = link.getAttribute("href");
    if (link.dataset.span !== undefined) select(address);
    else load(`${address.split("#")[0]}&part=rows`).then((page) => { swapRows(page); history.replaceState(null, "", address.split("#")[0]); showPlace(); }, () => location.assign(address));
  });
  let settle;
  document.addEventListener("keydown", (event) => {
    // The keys of rows have moved the focus: the span follows once they rest.
    const link = "jk".includes(event.key) && document.activeElement?.closest(".span")?.querySelector("a.name");
    if (!link) return;
    clearTimeout(settle);
    settle = setTimeout(() => select(link.getAttribute("href")), 120);
  });
  place();
  showTarget();
  box.addEventListener("scroll", () => { wanted ??= requestAnimationFrame(look); }, { passive: true });
  showPlace();
}
if (box) begin();
