"""Options of the verbs that measure training."""

from __future__ import annotations

from bench.arguments.options import BUSY, Verbs, add_threads


def add_attention(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "attention", help="one attention forward and backward, light kinds beside fused ones"
    )
    parser.add_argument(
        "--length", default="512,2048,8192", metavar="N,...", help="default 512,2048,8192"
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_training(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "training",
        help="updates of a model in training, beside the Marian model of transformers",
    )
    parser.add_argument(
        "--preset", default="transformer_small", help="a baseline (default transformer_small)"
    )
    parser.add_argument("--vocab-size", type=int, default=16000, metavar="N", help="default 16000")
    parser.add_argument(
        "--token-budget", type=int, default=3584, metavar="N", help="of a batch; default 3584"
    )
    parser.add_argument("--updates", type=int, default=8, metavar="N", help="a repetition; 8")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    add_threads(parser)
    parser.add_argument(
        "--bf16", action="store_true", help="bf16 autocast, if the processor supports it"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cuda: the first GPU")
    parser.add_argument("--busy", action="store_true", help=BUSY)
