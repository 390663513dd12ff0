// The list of contents marks the section that is read, and its group.

export function startContents() {
  const groups = [...document.querySelectorAll("nav .group")];
  const links = [...document.querySelectorAll("nav a:not(.group)")];
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  let followed = -1; // the link that was followed last, while its section is at the top
  const mark = () => {
    const line = Math.min(innerHeight * 0.3, scrollY); // at the top of the page the first section is read, however short
    const top = (section) => section.getBoundingClientRect().top;
    const atEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
    const passed = sections.filter((section) => top(section) <= line).length;
    if (followed >= 0 && (top(sections[followed]) < 0 || top(sections[followed]) > innerHeight * 0.3)) followed = -1;
    const now = followed >= 0 ? followed : atEnd && scrollY > 0 ? sections.length - 1 : Math.max(passed - 1, 0);
    const within = groups.findLast((group) => links[now].matches(".in-group") && group.compareDocumentPosition(links[now]) & 4); // before it
    groups.forEach((group) => group.classList.toggle("read", group === within));
    links.forEach((link, i) => {
      if (i !== now) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "true");
        const list = link.closest("nav");
        if (list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - list.offsetLeft - list.clientWidth / 3;
      }
    });
  };
  links.forEach((link, i) => link.addEventListener("click", () => requestAnimationFrame(() => {
    followed = i;
    mark();
  })));
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      mark();
    });
  }, { passive: true });
  mark();
}
