// A page opens as prose, tables and figures; a button shows the code that made them. Pages that teach Python show it,
// others only their cells tagged `shown`.
(() => {
  const taught = ["tutorial.html", "own-schedule.html"];
  const kept = "ppmodel-code";
  const recall = () => { try { return localStorage.getItem(kept); } catch { return null; } };
  const keep = (said) => { try { localStorage.setItem(kept, said); } catch { /* private windows keep nothing */ } };
  addEventListener("DOMContentLoaded", () => {
    const title = document.querySelector("article h1");
    const teaches = taught.some((name) => location.pathname.endsWith(`/${name}`));
    if (!title || teaches || !document.querySelector("article .cell_input")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "code-toggle";
    const set = (shown) => {
      document.documentElement.classList.toggle("code-hidden", !shown);
      button.setAttribute("aria-expanded", String(shown));
      button.textContent = shown ? "Hide the code" : "Show the code of this page";
    };
    set(recall() === "shown");
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-expanded") !== "true";
      set(shown);
      keep(shown ? "shown" : "hidden");
    });
    title.after(button);
  });
})();
