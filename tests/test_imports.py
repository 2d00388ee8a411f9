"""The package has no import cycles."""

import graphlib

import grimp


def test_no_imports_form_a_cycle():
    graph = grimp.build_graph("molslice", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(f"imports in a cycle: {' <- '.join(error.args[1])}") from None
