"""The command line `mstar-plan`: parse, call the command's function, say what went wrong in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from mstar_plan import __version__
from mstar_plan.errors import MStarError

# Name -> "module:function". A module is imported when its command runs, so that help and `models` need no torch.
COMMANDS: Mapping[str, str] = {
    "serve": "mstar_plan.commands.serve:serve",
    "plan": "mstar_plan.commands.plan:plan",
    "landscape": "mstar_plan.commands.landscape:landscape",
    "evaluate": "mstar_plan.commands.evaluate:evaluate",
    "collect": "mstar_plan.commands.collect:collect",
    "train": "mstar_plan.commands.train:train",
    "demo": "mstar_plan.commands.demo:demo",
    "convert": "mstar_plan.commands.convert:convert",
    "chat": "mstar_plan.commands.chat:chat",
    "say": "mstar_plan.commands.say:say",
    "act": "mstar_plan.commands.act:act",
    "models": "mstar_plan.commands.models:models",
    "graph": "mstar_plan.commands.graph:graph",
    "doctor": "mstar_plan.commands.doctor:doctor",
}
USAGE_ERROR = 2

app = typer.Typer(
    name="mstar-plan",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Plan for robots on learned world models. Settings are key=value words; see docs/configuration.md.",
)

Words = Annotated[list[str] | None, typer.Argument(help="Settings as key=value words.", metavar="[KEY=VALUE]...")]


@app.command()
def serve(words: Words = None) -> None:
    """Start the server: plans over gRPC, and language, speech and policies over gRPC, HTTP and websockets.

    Example: mstar-plan serve model=smollm2,assistant,reach port=50051 http_port=8000
    """
    call("serve", words or [])


@app.command()
def plan(
    observation: Annotated[Path, typer.Argument(help="Picture of now (PNG or JPEG).")],
    goal: Annotated[Path, typer.Argument(help="Picture of the goal.")],
    words: Words = None,
) -> None:
    """Plan from a picture of now to a picture of the goal.

    Example: mstar-plan plan now.png goal.png model=reach out=plan.json
    """
    call("plan", observation, goal, words or [])


@app.command()
def landscape(
    observation: Annotated[Path, typer.Argument(help="Picture of now (PNG or JPEG).")],
    goal: Annotated[Path, typer.Argument(help="Picture of the goal.")],
    words: Words = None,
) -> None:
    """Draw how far from the goal each action leads.

    Example: mstar-plan landscape now.png goal.png model=reach axes=[0,1] points=21 out=landscape.png
    """
    call("landscape", observation, goal, words or [])


@app.command()
def evaluate(words: Words = None) -> None:
    """Run closed-loop episodes of a task; writes a report.

    Example: mstar-plan evaluate env=push planner=cem controller=grpc episodes=20 seed=0 out=runs/push
    """
    call("evaluate", words or [])


@app.command()
def collect(words: Words = None) -> None:
    """Collect training episodes of a task.

    Example: mstar-plan collect env=reach
    """
    call("collect", words or [])


@app.command()
def train(words: Words = None) -> None:
    """Train a world model and write its weights.

    Example: mstar-plan train env=reach
    """
    call("train", words or [])


@app.command()
def demo(words: Words = None) -> None:
    """See it all: serve, drive three robots, write a report.

    Example: mstar-plan demo out=runs/demo
    """
    call("demo", words or [])


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="Published .pt bundle, or folder in the transformers layout.")],
    target: Annotated[Path, typer.Argument(help="Weight file to write, .safetensors.")],
    words: Words = None,
) -> None:
    """Convert published V-JEPA 2 weights to a weight file of ours.

    Example: mstar-plan convert vjepa2-ac-vitg.pt vjepa2_ac.safetensors dtype=bfloat16
    """
    call("convert", source, target, words or [])


@app.command()
def chat(
    message: Annotated[str, typer.Argument(help="What to say; without it, lines of stdin.")] = "",
    words: Words = None,
) -> None:
    """Talk with a language model.

    Example: mstar-plan chat "What is a robot?" options.max_tokens=64
    """
    call("chat", *_message_first(message, words or []))


@app.command()
def say(
    text: Annotated[str, typer.Argument(help="What to say.")],
    words: Words = None,
    out: Annotated[Path, typer.Option(help="WAV file to write.")] = Path("speech.wav"),
) -> None:
    """Speak a text into a sound file.

    Example: mstar-plan say "The arm has reached its goal." --out hello.wav
    """
    call("say", text, out, words or [])


@app.command()
def act(
    words: Words = None,
    see: Annotated[list[str] | None, typer.Option(help="KEY=VALUE of what is seen: a file, numbers or text.")] = None,
) -> None:
    """Ask a policy what to do.

    Example: mstar-plan act model=flow_reach --see observation/image=now.png --see observation/goal_image=goal.png
    """
    call("act", see or [], words or [])


@app.command()
def models() -> None:
    """List the models that can be served."""
    call("models")


@app.command()
def graph(
    model: Annotated[str, typer.Argument(help="Name of a model; `mstar-plan models` lists them.")],
    walk: Annotated[str, typer.Option(help="Draw this walk alone.")] = "",
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Draw as a Mermaid flow chart.")] = False,
) -> None:
    """Draw the walks of a model."""
    call("graph", model, walk, mermaid)


@app.command()
def doctor() -> None:
    """Check this machine, with a cure for each problem."""
    raise typer.Exit(call("doctor"))


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        typer.echo(f"mstar-plan {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _message_first(message: str, words: list[str]) -> tuple[str, list[str]]:
    """A first word that is a setting is no message."""
    is_setting = "=" in message and message.partition("=")[0].replace(".", "").replace("_", "").isalnum()
    return ("", [message, *words]) if is_setting else (message, words)


def call(command: str, *arguments: Any) -> Any:
    """Imports the module of a command and calls its function."""
    module, _, function = COMMANDS[command].partition(":")
    return getattr(import_module(module), function)(*arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Words after the program's name; those of this process by default.

    Returns:
        Exit code: 0 done, 1 failed, 2 an error that the message on stderr explains, 130 interrupted.
    """
    # Both are read when a library is first loaded: waiting OpenMP threads must not spin, and MuJoCo needs no screen.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        return app(args=list(arguments) if arguments is not None else None, standalone_mode=False) or 0
    except MStarError as error:
        return _complain(str(error), USAGE_ERROR)
    except typer.TyperException as error:
        return _complain(error.format_message(), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    if line:
        typer.echo(f"mstar-plan: {line}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
