"""Options of the verbs that measure encoders."""

from __future__ import annotations

from pathlib import Path

from bench.arguments.options import BUSY, Verbs, add_threads


def add_encoders(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "encoders",
        help="another project's encoder beside ONNX Runtime's dynamic int8 and CTranslate2",
    )
    parser.add_argument(
        "--bundle",
        type=Path,
        required=True,
        metavar="DIR",
        help="imported as int8, with pooling by the mean",
    )
    parser.add_argument(
        "--source", type=Path, required=True, metavar="DIR", help="the BERT that it was made from"
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one text per line"
    )
    parser.add_argument("--batch", default="1,8,32", metavar="N,...", help="texts per call; 1,8,32")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_encoder_server(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "encoder-server",
        help="an encoder over HTTP beside its engine alone",
        description="Texts per second of a bundle for the task encode over HTTP, as OpenAI's "
        "embeddings API, and of its engine alone, from as many clients at once.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one text per line"
    )
    parser.add_argument("--batch", default="1,8,32", metavar="N,...", help="texts per request")
    parser.add_argument("--seconds", type=int, default=5, metavar="N", help="a load; default 5")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)
