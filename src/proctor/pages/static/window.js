// A window over a long list: only the rows near the visible ones exist; others are fetched while scrolling.
const { parse, gone, number } = window.proctor;
const CHUNK = 50, MOST_CHUNKS = 12, WAIT_MS = 60;

function open(frame) {
  if (frame.dataset.ready) return;
  frame.dataset.ready = "1";
  const total = Number(frame.dataset.window), table = frame.querySelector("table"), body = table.tBodies[0];
  const line = document.querySelector("[data-shown]"), words = line?.dataset.words;
  const above = document.createElement("tbody"), below = document.createElement("tbody"), chunks = new Map();
  for (const space of [above, below]) { space.className = "space"; space.setAttribute("aria-hidden", "true"); space.append(document.createElement("tr")); }
  body.before(above); body.after(below);
  frame.classList.add("fixed"); frame.tabIndex = 0; frame.setAttribute("role", "group");
  frame.setAttribute("aria-labelledby", "all");
  const height = () => body.rows[0]?.getBoundingClientRect().height || 44;
  let tall = height(), from = Number(frame.dataset.from), timer, latest = 0;
  const place = (space, px) => { space.hidden = px < 1; space.rows[0].style.height = `${px}px`; };
  if (from % CHUNK === 0) chunks.set(from / CHUNK, [...body.rows]);

  async function load(at) {
    if (chunks.has(at)) return chunks.get(at);
    const answer = await fetch(`${frame.dataset.rows}&position=${at * CHUNK}`, { cache: "no-store" });
    if (gone(answer)) return [];
    if (!answer.ok) throw new Error(String(answer.status));
    const rows = [...parse(`<table><tbody>${await answer.text()}</tbody></table>`).querySelectorAll("tr")];
    chunks.set(at, rows.map((row) => document.adoptNode(row)));
    if (chunks.size > MOST_CHUNKS) chunks.delete([...chunks.keys()].sort((a, b) => Math.abs(b - at) - Math.abs(a - at))[0]);
    return chunks.get(at);
  }

  async function draw() {
    const turn = ++latest, seen = Math.max(1, Math.ceil(frame.clientHeight / tall));
    const first = Math.min(total - 1, Math.max(0, Math.floor((frame.scrollTop - table.tHead.offsetHeight) / tall)));
    const low = Math.floor(Math.max(0, first - 10) / CHUNK), high = Math.floor(Math.min(total - 1, first + seen + 10) / CHUNK);
    try {
      const rows = [];
      for (let at = low; at <= high; at++) rows.push(...await load(at));
      if (turn !== latest) return;
      // Scrolling away from a focused row continues from the list.
      if (body.contains(document.activeElement) && !rows.some((row) => row.contains(document.activeElement))) frame.focus({ preventScroll: true });
      place(above, low * CHUNK * tall); place(below, Math.max(0, total - low * CHUNK - rows.length) * tall);
      body.replaceChildren(...rows);
      document.dispatchEvent(new Event("swapped"));
      if (words) line.textContent = words.replace("{first}", number(first + 1)).replace("{last}", number(Math.min(total, first + seen))).replace("{total}", number(total));
    } catch {
      if (line) line.textContent = line.dataset.lost;
      clearTimeout(timer); timer = setTimeout(draw, 2000);
    }
  }
  const jump = (row) => { frame.scrollTop = row * tall; draw(); };
  frame.addEventListener("scroll", () => { clearTimeout(timer); timer = setTimeout(draw, WAIT_MS); }, { passive: true });
  addEventListener("resize", () => { const first = frame.scrollTop / tall; tall = height(); frame.scrollTop = first * tall; draw(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-jump]");
    if (link && frame.isConnected) { event.preventDefault(); jump(Number(link.dataset.jump)); frame.focus({ preventScroll: true }); }
  });
  document.querySelector(".jump-form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    jump(Math.max(0, Math.min(total, parseInt(event.target.elements.row.value.replace(/\D/g, "") || "1", 10)) - 1));
  });
  for (const link of document.querySelectorAll("[data-jump]")) link.hidden = false;
  place(above, from * tall); place(below, Math.max(0, total - from - body.rows.length) * tall);
  if (from) frame.scrollTop = from * tall;
}
const look = () => { for (const frame of document.querySelectorAll("[data-window]")) open(frame); };
look();
document.addEventListener("swapped", look);
