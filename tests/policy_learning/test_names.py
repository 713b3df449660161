from proxy.policy_learning.names import as_glob, as_globs


def test_a_name_fits_itself_alone():
    assert as_glob("a*[b]?") == "a[*][[]b][?]"


def test_lax_readings_are_there_once():
    assert as_globs("readFile", "readfile") == ["readFile", "readfile"]
    assert as_globs("") == []
