"""``headrace completion``: what a shell needs to complete commands, options, and names of topics, groups and views."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.command import Command
from headrace.cli.output import print_line

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="rich")

_BASH = r"""_headrace_completion() {
    local IFS=$'\n' line
    COMPREPLY=()
    while read -r line; do
        COMPREPLY+=("$line")
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _HEADRACE_COMPLETE=complete_bash "$1" 2>/dev/null)
}
complete -o default -F _headrace_completion headrace"""

_ZSH = r"""#compdef headrace
_headrace_completion() {
    eval "$(_TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _HEADRACE_COMPLETE=complete_zsh headrace 2>/dev/null)"
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _headrace_completion "$@"
else
    compdef _headrace_completion headrace
fi"""

_FISH = r"""function __headrace_complete
    set -lx _HEADRACE_COMPLETE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION $argv[1]
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp)
    headrace 2>/dev/null
end
complete --command headrace --no-files --arguments "(__headrace_complete get-args)" \
    --condition "__headrace_complete is-args" """


class Shell(StrEnum):
    """Shells that can be served."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


_SCRIPTS = {Shell.bash: _BASH, Shell.zsh: _ZSH, Shell.fish: _FISH.rstrip()}


@app.command(cls=Command)
def completion(shell: Annotated[Shell, typer.Argument(show_default=False)]) -> None:
    """Print a script for your shell: then Tab completes commands, options, and names of topics, groups and views.

    [bold]Examples[/bold]

    \b
    source <(headrace completion bash)                         for this shell
    headrace completion bash > ~/.local/share/bash-completion/completions/headrace
    headrace completion zsh > "${fpath[1]}/_headrace"
    headrace completion fish > ~/.config/fish/completions/headrace.fish
    """
    print_line(_SCRIPTS[shell])
