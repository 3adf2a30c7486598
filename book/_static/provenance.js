// Shows on the artefact appendix how long its build took, where the record beside the pages belongs to this very book.
// Times are no part of the pages: two builds of one commit are the same bytes.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".run-record");
  if (!place) return;
  const id = place.querySelector("code").textContent;
  const script = document.createElement("script");
  script.src = "../run.js";
  script.onload = () => {
    const run = window.ppmodelRun;
    if (!run || run.id !== id) return;
    const rows = [
      ["date", run.date],
      ["processor", `${run.processor}, ${run.cores} cores`],
      ["whole build", `${run.seconds} s`],
      ...Object.entries(run.notebooks).map(([name, seconds]) => [`notebook ${name}`, `${seconds} s`]),
    ];
    const table = document.createElement("table");
    table.className = "dataframe table";
    for (const row of rows) {
      const line = table.insertRow();
      for (const text of row) line.insertCell().textContent = text;
    }
    place.querySelector("p:last-of-type").replaceWith(table);
  };
  document.head.append(script);
});
