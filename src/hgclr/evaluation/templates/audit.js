(() => {
  const kind = document.getElementById("kind"), words = document.getElementById("words");
  const state = document.getElementById("state"), found = [...document.querySelectorAll(".found")];
  const texts = found.map((one) => one.textContent.toLowerCase());
  const narrow = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    found.forEach((one, place) => {
      const fits =
        (!kind.value || one.dataset.kind === kind.value) && wanted.every((word) => texts[place].includes(word));
      one.hidden = !fits;
      shown += fits;
    });
    state.textContent = shown === found.length ? "" : `${shown} of ${found.length}`;
  };
  kind.addEventListener("change", narrow);
  words.addEventListener("input", narrow);
})();
