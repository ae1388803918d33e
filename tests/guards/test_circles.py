"""No module of the project imports itself, by whatever way round."""

from collections.abc import Iterable, Iterator, Mapping

import grimp

PACKAGES = ("bench", "export", "training", "serving")


def circles(imports: Mapping[str, Iterable[str]]) -> Iterator[set[str]]:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_modules: list[str] = []

    def visit(module: str) -> Iterator[set[str]]:
        number[module] = lowest[module] = len(number)
        open_modules.append(module)
        for imported in imports.get(module, ()):
            if imported not in number:
                yield from visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in open_modules:
                lowest[module] = min(lowest[module], number[imported])
        if lowest[module] == number[module]:
            start = open_modules.index(module)
            component = set(open_modules[start:])
            del open_modules[start:]
            if len(component) > 1:
                yield component

    for module in imports:
        if module not in number:
            yield from visit(module)


def test_a_circle_is_found_and_what_leads_to_it_is_not_part_of_it() -> None:
    imports = {"a": ["b"], "b": ["c", "e"], "c": ["d"], "d": ["b"], "e": [], "f": ["f", "a"]}
    assert list(circles(imports)) == [{"b", "c", "d"}]


def test_no_import_leads_back_to_where_it_began() -> None:
    graph = grimp.build_graph(*PACKAGES)
    imports = {
        module: sorted(graph.find_modules_directly_imported_by(module))
        for module in sorted(graph.modules)
    }
    assert "serving.search.beams.beam" in imports  # the graph holds modules
    assert list(circles(imports)) == []
