// A page that answers first: sections behind its mark are lines that unfold. A link into one opens it; without a script, and on
// paper, all are open.
document.addEventListener("DOMContentLoaded", () => {
  const mark = document.querySelector(".folds-from-here");
  if (!mark) return;
  const folds = [];
  for (const section of document.querySelectorAll("article > section > section")) {
    const head = section.querySelector(":scope > h2");
    if (!head || section.id === "what-follows" || !(mark.compareDocumentPosition(section) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
    const fold = document.createElement("details"), summary = document.createElement("summary");
    fold.className = "section-fold";
    summary.append(head);
    fold.append(summary, ...section.childNodes);
    section.append(fold);
    folds.push(fold);
  }
  function reach() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target && (target.querySelector(":scope > .section-fold") || target.closest(".section-fold"));
    if (!fold) return;
    fold.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", reach);
  addEventListener("beforeprint", () => folds.forEach((fold) => { fold.open = true; }));
  reach();
});
