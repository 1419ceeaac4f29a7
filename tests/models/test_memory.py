"""Free memory is what this process may take: the machine's, less what the container around it forbids."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from draftproof import LoadError
from draftproof.models.load import load
from draftproof.models.memory import free_bytes

GIB = 2**30
V1 = {"memory.limit_in_bytes": 4 * GIB, "memory.usage_in_bytes": 3 * GIB}
UNLIMITED_V1 = {"memory.limit_in_bytes": 9223372036854771712, "memory.usage_in_bytes": 3 * GIB}


def lay_out(root, own, groups):
    """Write a tree as the kernel shows it: what this process belongs to, and the files of each group."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for group, files in groups.items():
        folder = root / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")


def v2(limit, used, reclaimable=0, high="max"):
    stat = f"anon 5\nfile 77\nworkingset_refault_file 99\ninactive_file {reclaimable}\nactive_file 3"
    return {"memory.max": limit, "memory.current": used, "memory.high": high, "memory.stat": stat}


@pytest.mark.parametrize(
    ("own", "groups", "free"),
    [
        ("0::/\n", {"": v2(4 * GIB, GIB)}, 3 * GIB),  # inside a container, which sees itself as the root
        ("0::/\n", {"": v2(4 * GIB, 4 * GIB, reclaimable=GIB)}, GIB),
        ("0::/\n", {"": v2(4 * GIB, GIB, reclaimable=9 * GIB)}, 4 * GIB),
        ("0::/\n", {"": v2("max", 3 * GIB)}, 16 * GIB),
        ("0::/\n", {"": v2(99 * GIB, GIB)}, 16 * GIB),
        ("0::/\n", {"": v2(GIB, 2 * GIB)}, 0),
        ("0::/\n", {"": v2("max", GIB, high=3 * GIB)}, 2 * GIB),
        ("0::/a/b\n", {"a/b": v2("max", GIB), "a": v2(5 * GIB, 3 * GIB), "": {}}, 2 * GIB),  # the outer one is tighter
        ("0::/a/b\n", {"a/b": v2(2 * GIB, GIB), "a": v2(5 * GIB, 3 * GIB)}, GIB),
        ("0::/host/name\n", {"": v2(4 * GIB, GIB)}, 3 * GIB),  # named as on the host, mounted as the root
        ("0::/../other\n", {"": v2(4 * GIB, GIB)}, 3 * GIB),
        ("4:memory:/docker/x\n1:cpu:/\n", {"memory/docker/x": V1, "memory": UNLIMITED_V1}, GIB),
        ("4:cpu,memory:/x\n", {"memory": V1 | {"memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB}"}}, 2 * GIB),
        ("4:memory:/\n0::/\n", {"memory": UNLIMITED_V1, "": {}}, 16 * GIB),
        ("", {}, 16 * GIB),
        (
            "nonsense\n:::\n0::/\n",
            {"": {"memory.max": "x", "memory.current": "", "memory.stat": "inactive_file"}},
            16 * GIB,
        ),
        ("0::/\n", {"": {"memory.max": GIB, "memory.current": 5, "memory.stat": "inactive_file\n\n"}}, GIB - 5),
    ],
)
def test_the_tightest_limit_around_a_process_counts(tmp_path, monkeypatch, own, groups, free):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=16 * GIB))
    lay_out(tmp_path, own, groups)
    assert free_bytes("cpu", tmp_path) == free


def test_a_model_that_does_not_fit_into_the_container_is_refused(model, tmp_path, monkeypatch):
    lay_out(tmp_path / "root", "0::/\n", {"": v2(1000, 10)})
    monkeypatch.setattr("draftproof.models.checkpoint.free_bytes", lambda device: free_bytes(device, tmp_path / "root"))
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(LoadError, match=r"0\.0 GiB are free on cpu"):
        load(tmp_path / "model")
