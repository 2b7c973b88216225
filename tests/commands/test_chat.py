"""`mstar-plan chat`: one message, or a conversation over stdin."""

from __future__ import annotations

import io

import pytest
import toy_catalogue

from mstar_plan.cli import main


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mstar_plan.families.catalogue.FAMILIES", toy_catalogue.CATALOGUE)


def test_one_message(capsys):
    assert main(["chat", "what is it", "model=writer"]) == 0
    assert capsys.readouterr().out == "user:what is it \n"


def test_options_and_the_system_message_arrive(capsys):
    assert main(["chat", "a b c", "model=writer", "system=be brief", "options.max_tokens=4"]) == 0
    assert capsys.readouterr().out == "system:be brief | user:a \n"


def test_a_conversation_remembers(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\ntwo\n"))
    assert main(["chat", "model=writer"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "user:one "
    assert second == "user:one | assistant:user:one  | user:two "


def test_the_family_is_closed_at_the_end():
    before = len(toy_catalogue.closed)
    assert main(["chat", "hello", "model=writer"]) == 0
    assert len(toy_catalogue.closed) == before + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=hummer"], "has no text, but speech"),
        (["model=writre"], "did you mean 'writer'"),
        (["model=writer", "options.temperature=-1"], "temperature is -1"),
        (["model=writer", "options.tmperature=1"], "did you mean"),
    ],
)
def test_mistakes(capsys, words, said):
    assert main(["chat", "hello", *words]) == 2
    assert said in capsys.readouterr().err
