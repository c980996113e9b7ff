"""Tab in a real shell: commands, options, and names of what is in the log."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import HEADRACE, Cli
from tests.servers import Headrace


def completed(line: str, folder: Path, env: dict[str, str] | None = None) -> list[str]:
    """What bash offers at the end of a line."""
    script = f"""
        source <({HEADRACE} completion bash)
        line={line!r}
        read -ra COMP_WORDS <<< "$line"
        [[ "$line" == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        COMP_LINE="$line"
        COMP_POINT=${{#line}}
        $(complete -p headrace | sed -n 's/.*-F \\([^ ]*\\) .*/\\1/p') {HEADRACE} "${{COMP_WORDS[COMP_CWORD]}}" ""
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**Cli().env(), **(env or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_and_names(tmp_path: Path) -> None:
    node = Headrace(tmp_path / "node")
    try:
        cli = Cli(node.bootstrap)
        cli("topic", "create", "orders")
        cli("topic", "create", "order-lines")
        here = {"HEADRACE_SERVER": node.bootstrap, "HEADRACE_LOG": node.bootstrap}
        assert completed("headrace to", tmp_path) == ["topic"]
        assert set(completed("headrace topic ", tmp_path)) >= {"create", "list", "describe", "delete"}
        assert "--listen" in completed("headrace up --li", tmp_path)
        assert completed("headrace topic describe ord", tmp_path, here) == ["order-lines", "orders"]
        (tmp_path / "headrace.toml").write_text(f'server = "{node.bootstrap}"\n')
        assert completed("headrace consume order-", tmp_path) == ["order-lines"]
    finally:
        node.kill9()
    assert completed("headrace topic describe ord", tmp_path, here) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_that_its_shell_can_read(tmp_path: Path, shell: str) -> None:
    script = tmp_path / "script"
    script.write_text(Cli(folder=tmp_path)("completion", shell).out)
    assert "_HEADRACE_COMPLETE" in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (apt install {shell})")
    assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0
