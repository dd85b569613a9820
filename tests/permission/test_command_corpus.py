"""Thousands of generated commands beside a rule that denies a program: whatever runs it is denied or asked about."""

import shutil
from pathlib import Path

import pytest

from journeyman.gate import Allow
from journeyman.permission.permission import Permission
from tests.permission.corpus import make_corpus
from tests.permission.workshop import StubShell, request
from tests.support.shares import SEED, thinned


@pytest.mark.fuzz
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
async def test_what_runs_a_denied_program_is_never_unasked_without_a_box(tmp_path: Path) -> None:
    shell = StubShell(tmp_path, "denied", with_real=True)
    gate = Permission(mode="trust", deny=["Bash(denied *)"], roots=[shell.folder])
    tried = thinned(make_corpus(SEED), 12)
    unasked = [each for each in tried if await gate.decide(request("bash", command=each)) == Allow()]
    assert [each for each in unasked if shell.run(each)] == []
    assert len(tried) >= 300
    assert len(unasked) < len(tried) / 20, "they are few, so that all of them can be run"
