// A window over many spans: the box has the height of all of them, and the visible rows are fetched while scrolling.
const box = document.getElementById("span-box");
const { parse, gone, number } = window.proctor;
const status = document.getElementById("span-place");

function begin() {
  let list = document.getElementById("spans");
  const visible = Number(list.dataset.visible), size = Number(list.dataset.size);
  if (visible <= size) return;
  box.classList.add("moving");
  document.getElementById("span-paging")?.remove();
  const before = document.createElement("div"), after = document.createElement("div");
  box.prepend(before);
  box.append(after);
  const height = list.firstElementChild.getBoundingClientRect().height;
  let fetching = false, wanted;

  function place() {
    const first = Number(list.dataset.first);
    before.style.height = `${first * height}px`;
    after.style.height = `${Math.max(0, visible - first - list.children.length) * height}px`;
  }
  function showPlace() {
    const top = Math.floor(box.scrollTop / height), rows = Math.ceil(box.clientHeight / height);
    status.textContent = status.dataset.text.replace("{first}", number(top + 1)).replace("{last}", number(Math.min(visible, top + rows))).replace("{visible}", number(visible));
  }
  async function fetchRows(first) {
    const answer = await fetch(`${list.dataset.address}&from=${first}&part=rows`, { cache: "no-store" });
    if (gone(answer)) return;
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = parse(await answer.text()).getElementById("spans");
    const focused = document.activeElement?.closest(".span")?.id;
    list.replaceWith(document.adoptNode(fresh));
    list = fresh;
    place();
    if (focused) document.getElementById(focused)?.querySelector("a")?.focus({ preventScroll: true });
  }
  function look() {
    wanted = undefined;
    showPlace();
    const top = Math.floor(box.scrollTop / height), rows = Math.ceil(box.clientHeight / height);
    const first = Number(list.dataset.first), last = first + list.children.length;
    // One request at a time: fast scrolling fetches the final position only.
    if (fetching || top >= first && Math.min(visible, top + rows) <= last) return;
    const next = Math.max(0, Math.min(visible - size, top - Math.floor((size - rows) / 2)));
    fetching = true;
    fetchRows(next).then(() => { fetching = false; look(); }, () => { fetching = false; status.textContent = status.dataset.lost; setTimeout(look, 2000); });
  }
  place();
  const target = list.querySelector(".current");
  box.scrollTop = (Number(list.dataset.first) + (target ? [...list.children].indexOf(target) - 4 : 0)) * height;
  box.addEventListener("scroll", () => { wanted ??= requestAnimationFrame(look); }, { passive: true });
  showPlace();
}
if (box) begin();
