"""The command `labelwright`: files of rows in, labels out, by a running server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from labelwright_client._client import Client
from labelwright_client._errors import ClientError, InvalidArgument, InvalidInput
from labelwright_client._files import READERS, Source, first_rows, read_rows
from labelwright_client._output import (
    FORMATS,
    format_of,
    opened,
    table,
    write_embeddings,
    write_masks,
    write_picture,
    write_predictions,
)
from labelwright_client._progress import Bar
from labelwright_client._protocol import DEFAULT_URL, URL_VARIABLE
from labelwright_client._types import Compared, ModelInfo

ENDINGS = ", ".join(READERS)
PICTURES = (".png", ".jpg", ".jpeg", ".bmp")
TIMEOUT = 60.0  # seconds; nobody waits for an answer, so more than the library's default


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; 0 done, 2 bad input, 1 a server that does not answer, 130 interrupted."""
    options = _parser().parse_args(words)
    try:
        with Client(options.url, timeout=TIMEOUT) as client:
            options.run(client, options)
            sys.stdout.flush()
    except (InvalidArgument, InvalidInput) as error:
        return _fail(error, 2)
    except ClientError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Who reads has seen enough, as `head` does. What is left to flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _predict(client: Client, options: argparse.Namespace) -> None:
    if options.file.suffix.lower() in PICTURES:
        _segment(client, options)
        return
    form = format_of(options.out, options.format)
    model = _chosen(client, options.model)
    _require_task(model, options.file, "multilabel")
    source = read_rows(options.file, model.input, options.text_column)
    with opened(options.out) as file, _Shown(source) as progress:
        predictions = client.predict_many(
            source.rows,
            model=model.name,
            top_k=options.top_k,
            threshold=options.threshold,
            chunk_rows=options.chunk_rows,
            concurrency=options.concurrency,
            progress=progress,
        )
        write_predictions(predictions, file, form)


def _segment(client: Client, options: argparse.Namespace) -> None:
    """The mask of one picture: to a picture, or what it covers as text."""
    is_picture = options.out is not None and options.out.suffix.lower() == ".png"
    form = "" if is_picture else format_of(options.out, options.format)
    if options.top_k is not None:
        raise InvalidArgument("--top-k is for labels: a picture is answered with a mask")
    model = _chosen(client, options.model)
    _require_task(model, options.file, "segmentation")
    masks = client.segment([options.file], model=model.name, threshold=options.threshold)
    if is_picture:
        write_picture(masks[0], options.out)
        return
    with opened(options.out) as file:
        write_masks(masks, file, form)


def _require_task(model: ModelInfo, file: Path, task: str) -> None:
    takes = "pictures" if model.task == "segmentation" else "rows"
    if model.task != task:
        wanted = ", ".join(PICTURES) if takes == "pictures" else ENDINGS
        raise InvalidArgument(f"{model.name} takes {takes}, and {file} has none: send {wanted}")


def _embed(client: Client, options: argparse.Namespace) -> None:
    form = format_of(options.out, options.format)
    model = _chosen(client, options.model)
    source = read_rows(options.file, model.input, options.text_column)
    with opened(options.out) as file, _Shown(source) as progress:
        vectors = client.embed_many(
            source.rows,
            model=model.name,
            chunk_rows=options.chunk_rows,
            concurrency=options.concurrency,
            progress=progress,
        )
        write_embeddings(vectors, file, form)


def _models(client: Client, _: argparse.Namespace) -> None:
    header = ("name", "method", "dataset", "input", "width", "labels", "version")
    rows = [
        (m.name, m.method, m.dataset, m.input.kind, m.input.width, m.label_count, m.version)
        for m in client.models()
    ]
    print(table(header, rows))


def _compare(client: Client, options: argparse.Namespace) -> None:
    if options.file is None:
        _print_speeds(client, options.baseline)
        return
    names = options.models or [model.name for model in client.models()]
    source = read_rows(options.file, client.model(names[0]).input, options.text_column)
    answers = client.compare(
        first_rows(source, options.rows),
        models=names,
        top_k=options.top_k,
        threshold=options.threshold,
    )
    for name, answer in zip(names, answers, strict=True):
        _print_compared(name, answer)


def _print_compared(name: str, answer: Compared) -> None:
    print(f"{name}  {answer.milliseconds:.3g} ms")
    if answer.error is not None:
        print(f"  {answer.error.type}: {answer.error.message}")
    for row, prediction in enumerate(answer.predictions or ()):
        pairs = zip(prediction.labels, prediction.scores, strict=True)
        words = ", ".join(f"{label} {score:.3f}" for label, score in pairs)
        print(f"  row {row}: {words or 'no label'}")


def _print_speeds(client: Client, baseline: str | None) -> None:
    speeds = client.speeds(baseline=baseline)
    header = (
        "model",
        "method",
        "requests",
        "rows",
        "rows/s",
        "ratio",
        "p50 ms",
        "p95 ms",
        "p99 ms",
    )
    rows = [
        (m.name, m.method, m.requests, m.rows, m.rows_per_second, m.ratio, q.p50, q.p95, q.p99)
        for m in speeds.models
        for q in [m.latency_ms]
    ]
    print(table(header, rows))
    print(f"ratio: rows a second in the model's own time, those of {speeds.baseline} being 1")


def _chosen(client: Client, name: str | None) -> ModelInfo:
    """The model asked for, or the only one there is, with the names of its columns."""
    if name is None:
        names = [model.name for model in client.models()]
        if len(names) != 1:
            raise InvalidArgument(f"choose one with --model: the server has {', '.join(names)}")
        name = names[0]
    return client.model(name)


class _Shown:
    """The progress of a file: its bar knows the total, which a stream of lines does not."""

    def __init__(self, source: Source) -> None:
        self._bar, self._total = Bar(sys.stderr), source.total

    def __enter__(self) -> Callable[[int, int | None], None]:
        return lambda done, _: self._bar(done, self._total)

    def __exit__(self, *_: object) -> None:
        self._bar.finish()


def _fail(error: ClientError, code: int) -> int:
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    print(f"error: {error}{notes}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence in place of the whole usage."""
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="labelwright",
        description="Ask a running Labelwright server about rows in files.",
        epilog="example: labelwright predict my.csv --top-k 3 --out labels.csv",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    predict = _command(commands, "predict", _predict, "labels for the rows of a file")
    predict.epilog = "example: labelwright predict my.csv --top-k 3 --out labels.csv"
    _add_file(predict, f"{ENDINGS}; or a picture: {', '.join(PICTURES)}")
    _add_many(predict)
    _add_choice(predict)
    embed = _command(commands, "embed", _embed, "vectors for the rows of a file")
    embed.epilog = "example: labelwright embed my.csv --out vectors.jsonl"
    _add_file(embed)
    _add_many(embed)
    models = _command(commands, "models", _models, "what the server has loaded")
    models.epilog = "example: labelwright models --url http://127.0.0.1:8000"
    compare = _command(
        commands, "compare", _compare, "the speed of all models, or their labels for a few rows"
    )
    compare.epilog = "example: labelwright compare my.csv --rows 2 --top-k 3"
    _add_file(compare, nargs="?")
    _add_choice(compare)
    add = compare.add_argument
    add("--models", type=_names, metavar="A,B", help="names, with commas between; default all")
    add("--rows", type=_count, default=1, help="how many rows of FILE; default 1")
    add("--baseline", metavar="NAME", help="without FILE: the model whose speed is 1")
    return parser


def _command(
    commands: Any,  # noqa: ANN401 - argparse hides the type
    name: str,
    run: Callable[[Client, argparse.Namespace], None],
    words: str,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=words)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--url", help=f"address of the server; default ${URL_VARIABLE}, else {DEFAULT_URL}"
    )
    return parser


def _add_file(parser: argparse.ArgumentParser, endings: str = ENDINGS, **options: Any) -> None:  # noqa: ANN401 - of argparse
    parser.add_argument("file", type=Path, metavar="FILE", help=f"rows: {endings}", **options)
    parser.add_argument(
        "--text-column", default="text", help="where texts are, in tables and objects; default text"
    )


def _add_many(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="NAME", help="needed if the server has several")
    add("--out", type=Path, help=".csv or .jsonl, of a picture also .png; default standard output")
    add("--format", choices=FORMATS, help="default by the ending of --out, else csv")
    add("--chunk-rows", type=_count, default=256, help="rows in a request; default 256")
    add("--concurrency", type=_count, default=4, help="requests at a time; default 4")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--top-k", type=_count, help="at most so many labels a row")
    add("--threshold", type=_threshold, help="lowest score: a number, tuned or per-label")


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {word!r}")
    return int(word)


def _threshold(word: str) -> float | str:
    if word in ("tuned", "per-label"):
        return word
    try:
        return float(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a number, tuned or per-label, got {word!r}"
        ) from error


def _names(words: str) -> list[str]:
    return words.split(",")
