"use strict";
for (const button of document.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-show]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    for (const row of document.querySelectorAll("[data-state]")) {
      row.hidden = button.dataset.show !== "all" && button.dataset.show !== row.dataset.state;
    }
  });
}
