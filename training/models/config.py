"""Model configurations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from training.errors import ConfigError

ATTENTIONS = ("full", "dilated", "dilated_memory", "cascade")
"""What the layers of a language model see; see `light_attention.layer_offsets`."""

CONVOLUTIONS = ("light_conv", "dynamic_conv")
"""Convolutions that may stand in the place of self-attention; see `convolution.Convolution`."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """What the configurations of all architectures have in common."""

    least_encoder_layers: ClassVar[int] = 1
    least_decoder_layers: ClassVar[int] = 1
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = {
        "norm": ("pre", "post"),
        "norm_type": ("layer", "rms", "scale"),
        "activation": (
            "relu",
            "gelu",
            "gelu_tanh",
            "silu",
            "reglu",
            "geglu",
            "swiglu",
            "geglu_tanh",
        ),
        "attention_init": ("xavier", "small"),
        "embedding_scale": ("token", "sum", "none"),
        "ffn_hidden_layers": (1, 2),
        "head_dropout_schedule": ("constant", "v"),
        "positions": ("sinusoid", "relative", "rotary"),
    }
    """What the fields may be that choose by a name."""
    decoding_budget: ClassVar[int] = 8192
    """Beams x `batch_cost` of a batch that is decoded: a few hundred short sentences."""

    architecture: str
    """Which kind of model it is: a key of `ARCHITECTURES`."""
    model_dim: int = 256
    num_heads: int = 4
    ffn_dim: int = 1024
    """Inner size of one feed-forward; layers of Macaron and joint models have two."""
    activation: str = "relu"
    """Of the feed-forward: `relu`, `gelu`, `gelu_tanh` (GELU by tanh, nearly), `silu`, or gated
    `reglu`, `geglu`, `geglu_tanh`, `swiglu`, which have three matrices of `ffn_dim` each: two
    thirds of it keep the number of parameters."""
    ffn_hidden_layers: int = 1
    """Of the feed-forward, each of `ffn_dim`: 1, or 2, with an activation behind each and no
    residual inside (the ablation of Lu et al. 2019)."""
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    vocab_size: int = 8000
    """Pieces of the vocabulary that source and target share."""
    norm: str = "pre"
    """`pre`: normalise each sublayer's input, and once at the end; `post`: after each residual."""
    norm_type: str = "layer"
    """`layer`: LayerNorm; `rms`: RMSNorm (Zhang and Sennrich 2019); `scale`: ScaleNorm (Nguyen and
    Salazar 2019)."""
    norm_eps: float = 1e-5
    """Added to the variance, with `rms` to the mean square; with `scale` the least length."""
    embedding_scale: str = "token"
    """What sqrt(model_dim) multiplies: the vector of a `token`, its `sum` with the position, or
    `none` of them."""
    positions: str = "sinusoid"
    """`sinusoid`: added to the embedding; in self-attention, in their place: `relative`, a vector
    for each distance (Shaw et al. 2018), or `rotary` (Su et al. 2021)."""
    max_relative_distance: int = 16
    """Of positions that are `relative`: those further away count as that far."""
    fix_norm: bool = False
    """Vectors of unit length in the embedding and the output matrix, which must be one (FixNorm;
    Nguyen and Salazar 2019)."""
    fix_norm_scale: bool = False
    """A learnt factor of the logits beside `fix_norm`."""
    attention_init: str = "xavier"
    """`xavier`: uniform, as in fairseq; `small`: N(0, sqrt(2 / (5 model_dim))) (SmallInit; Nguyen
    and Salazar 2019)."""
    dropout: float = 0.1
    """After embeddings and each sublayer."""
    attention_dropout: float = 0.0
    """On attention probabilities, after the softmax."""
    activation_dropout: float = 0.0
    """Inside the feed-forward, after the activation and its gate."""
    head_dropout: float = 0.0
    """Probability with which a row loses a head of each attention (DropHead; Zhou et al. 2020)."""
    head_dropout_schedule: str = "constant"
    """`v`: from `head_dropout` down to 0 at the end of the learning rate's warm-up, and up to it
    again at the end of training."""
    encoder_layerdrop: float = 0.0
    """Probability with which an update leaves out a layer of the encoder (LayerDrop; Fan et al.
    2019)."""
    decoder_layerdrop: float = 0.0
    learns_layerdrop: bool = False
    """Each layer learns its own probability; the mean of a side's is the given one."""

    def __post_init__(self) -> None:
        if ARCHITECTURES.get(self.architecture) is not type(self):
            raise ConfigError(
                f"architecture must be one of {sorted(ARCHITECTURES)}, got {self.architecture!r}"
            )
        least = dict.fromkeys(("num_heads", "ffn_dim", "vocab_size"), 1) | {
            "num_encoder_layers": self.least_encoder_layers,
            "num_decoder_layers": self.least_decoder_layers,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        self._check_width()
        for name, allowed in self.choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} of architecture {self.architecture!r} must be one of {allowed}, "
                    f"got {getattr(self, name)!r}"
                )
        if self.max_relative_distance < 1:
            raise ConfigError(
                f"max_relative_distance must be >= 1, got {self.max_relative_distance}"
            )
        if not self.norm_eps > 0.0:
            raise ConfigError(f"norm_eps must be > 0, got {self.norm_eps}")
        if self.fix_norm_scale and not self.fix_norm:
            raise ConfigError(
                "fix_norm_scale needs fix_norm: true, got fix_norm: false; set both or neither"
            )
        rates = ("dropout", "attention_dropout", "activation_dropout", "head_dropout")
        for name in (*rates, "encoder_layerdrop", "decoder_layerdrop"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        self._check_layerdrop()

    def _check_width(self) -> None:
        """Raise ConfigError for a width that sinusoids or heads have no place in."""
        # Sinusoids need two frequencies at least.
        if self.model_dim < 4 or self.model_dim % (2 * self.num_heads):
            raise ConfigError(
                f"model_dim must be >= 4 and a multiple of 2 * num_heads = {2 * self.num_heads}, "
                f"got {self.model_dim}"
            )

    def _check_block(self, block: str) -> None:
        """Raise ConfigError for sizes that a block has no place for."""
        if block == "weighted" and self.ffn_dim % self.num_heads:
            raise ConfigError(
                "block: weighted gives each head its share of ffn_dim, which must be a multiple of "
                f"num_heads = {self.num_heads}, got {self.ffn_dim}"
            )

    def _check_layerdrop(self) -> None:
        """Raise ConfigError for rates of layers that there are none of."""
        for side in ("encoder", "decoder"):
            rate = getattr(self, f"{side}_layerdrop")
            if rate and not getattr(self, f"num_{side}_layers"):
                raise ConfigError(
                    f"{side}_layerdrop = {rate} leaves out layers of the {side}, but "
                    f"num_{side}_layers is 0; set it to 0"
                )
        if self.learns_layerdrop and not (self.encoder_layerdrop or self.decoder_layerdrop):
            raise ConfigError(
                "learns_layerdrop shares out encoder_layerdrop and decoder_layerdrop, and both are "
                "0; set one of them"
            )

    @property
    def first_activation(self) -> str:
        """Activation of the first of a Macaron layer's two feed-forwards."""
        return self.activation

    @property
    def norm_affine(self) -> bool:
        """Whether the norms of layers have gains and biases of their own."""
        return True

    @property
    def attention_bias(self) -> bool:
        """Whether the projections of attention have biases."""
        return True

    @property
    def ffn_bias(self) -> bool:
        """Whether the feed-forward has biases."""
        return True

    @property
    def head_width(self) -> int:
        """Features of one head of attention."""
        return self.model_dim // self.num_heads

    @property
    def attention_width(self) -> int:
        """Features of all heads of attention together."""
        return self.num_heads * self.head_width

    @property
    @abstractmethod
    def family(self) -> str:
        """What a bundle's manifest calls models of this kind."""

    def batch_cost(self, source_length: int, target_length: int) -> int:
        """What one row of a padded batch counts in the token budget: its longer side."""
        return max(source_length, target_length)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """Sizes of an encoder-decoder Transformer; source, target and output have one embedding unless
    it says otherwise."""

    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "encoder_mixing": ("attention", *CONVOLUTIONS),
        "decoder_mixing": ("attention", *CONVOLUTIONS, "ssru"),
        "positions": (
            "sinusoid",
            "relative",
            "rotary",
            "relative_bias",
            "marian",
            "tensor2tensor",
            "fairseq",
            "interleaved",
            "learnt",
        ),
    }

    architecture: str = "transformer"
    block: str = "standard"
    """A key of `blocks.ORDERS` (`standard`, `macaron`, `attention_ffn_attention`, `weighted`), or
    `package.module:name` of a pair (encoder layer, decoder layer)."""
    positions: str = "sinusoid"
    """As in all models; `relative_bias`: in self-attention a number for each distance and head,
    which all layers of a side share (Raffel et al. 2020, "T5"); `marian`, `tensor2tensor` and
    `fairseq`, which count or space the halves of `sinusoid` otherwise; `interleaved`, with sines
    and cosines in turn; or `learnt`: a table of `max_positions` rows for each side."""
    num_buckets: int = 32
    """Of positions that are a `relative_bias`: distances that are told apart. Half of them are
    single distances, the others ranges that grow; in the encoder each direction has half."""
    max_distance: int = 128
    """Of positions that are a `relative_bias`: those from here on count as one."""
    max_positions: int = 0
    """Positions of a `learnt` table, which bounds source and target; 0 for all others, whose length
    is open."""
    embedding_norm: bool = False
    """A norm after the embedding of each side, of the configured type."""
    tie_embeddings: bool = True
    """Whether the output matrix is the target's embedding; else it is one of its own."""
    output_bias: bool = False
    """A bias beside the output matrix."""
    head_dim: int = 0
    """Features of one head of attention; 0 is `model_dim` over `num_heads`."""
    attention_bias: bool = True
    """Biases in the projections of attention."""
    ffn_bias: bool = True
    """Biases in the feed-forward."""
    source_vocab_size: int = 0
    """Vectors of an embedding of the source's own; 0 where it is the target's. `vocab_size` counts
    the target's pieces then."""
    share_layers: bool = False
    """One layer's weights for all steps of a side, of which there are `num_encoder_layers` and
    `num_decoder_layers` (Universal Transformer; Dehghani et al. 2018)."""
    halting: bool = False
    """With shared layers: each position has as many steps as it needs, that many at most."""
    halting_threshold: float = 0.99
    """Sum of the halting probabilities at which a position has had its last step."""
    ponder_weight: float = 0.01
    """Weight of the steps of a position, in the mean, beside the loss of a label."""
    encoder_mixing: str = "attention"
    """What brings the positions of a side together: self-`attention`, `light_conv` or
    `dynamic_conv` (Wu et al. 2019)."""
    decoder_mixing: str = "attention"
    """The same, or `ssru`, a recurrent cell (Kim et al. 2019)."""
    encoder_kernel_sizes: tuple[int, ...] = ()
    """Widths of the convolutions, one a layer and odd; none stands for the paper's 3, 7, 15, 31,
    31 and so on."""
    decoder_kernel_sizes: tuple[int, ...] = ()
    conv_glu: bool = True
    """A gated linear unit before each convolution."""
    kernel_softmax: bool = True
    """The taps of convolutions sum to one; else they are what is learnt or computed, as it is
    (`weight_softmax` in the authors' code)."""
    conv_input_dropout: float = 0.0
    """On what a convolution's sublayer is given."""
    kernel_dropout: float = 0.0
    """On the taps of convolutions, after the softmax (DropConnect; `weight_dropout` in the authors'
    code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_embeddings()
        self._check_steps()
        self._check_heads()
        self._check_positions()
        self._check_convolutions()

    def _check_width(self) -> None:
        if not self.head_dim:
            super()._check_width()
            return
        if self.model_dim < 4 or self.model_dim % 2:
            raise ConfigError(f"model_dim must be >= 4 and even, got {self.model_dim}")
        if self.head_dim < 2 or self.head_dim % 2:
            raise ConfigError(f"head_dim must be 0 or even, got {self.head_dim}")

    def _check_heads(self) -> None:
        """Raise ConfigError for matrices that do not fit one another."""
        if self.head_dim and self.block == "weighted":
            raise ConfigError(
                "block: weighted gives each head a share of model_dim, got head_dim: "
                f"{self.head_dim}; set head_dim: 0 or another block"
            )
        for side in ("encoder", "decoder"):
            mixing = getattr(self, f"{side}_mixing")
            if self.head_dim and mixing in CONVOLUTIONS:
                raise ConfigError(
                    f"{side}_mixing: {mixing} divides model_dim among heads, got head_dim: "
                    f"{self.head_dim}; set head_dim: 0 or {side}_mixing: attention"
                )

    def _check_embeddings(self) -> None:
        if self.source_vocab_size < 0:
            raise ConfigError(f"source_vocab_size must be >= 0, got {self.source_vocab_size}")
        if self.fix_norm and not self.tie_embeddings:
            raise ConfigError(
                "fix_norm needs tie_embeddings: true, since its vectors are those of the output "
                "matrix, got tie_embeddings: false; change one of them"
            )

    def _check_steps(self) -> None:
        self._check_block(self.block)
        if self.halting and not self.share_layers:
            raise ConfigError(
                "halting: true ends the steps of one layer early and needs share_layers: true, got "
                "share_layers: false; set both or neither"
            )
        if not 0.0 < self.halting_threshold < 1.0:
            raise ConfigError(f"halting_threshold must be in (0, 1), got {self.halting_threshold}")
        if not self.ponder_weight >= 0.0:
            raise ConfigError(f"ponder_weight must be >= 0, got {self.ponder_weight}")
        for name in ("encoder_layerdrop", "decoder_layerdrop"):
            if self.share_layers and getattr(self, name):
                raise ConfigError(
                    f"{name} = {getattr(self, name)} leaves out layers of their own, but "
                    "share_layers: true has one for all steps; set one of the two"
                )

    def _check_positions(self) -> None:
        """Raise ConfigError for positions that other options have no place for."""
        if (self.positions == "learnt") != (self.max_positions > 0) or self.max_positions < 0:
            raise ConfigError(
                "max_positions must be > 0 for positions 'learnt' and 0 for others, got "
                f"{self.max_positions} for {self.positions!r}"
            )
        if self.positions == "relative_bias":
            self._check_buckets()
        if self.share_layers and self.positions in (
            "marian",
            "tensor2tensor",
            "fairseq",
            "interleaved",
            "learnt",
        ):
            raise ConfigError(
                "share_layers: true adds the positions of sinusoid before each step, got "
                f"positions: {self.positions}; use sinusoid, relative, relative_bias or rotary"
            )

    def _check_buckets(self) -> None:
        """Raise ConfigError for distances that cannot be told apart."""
        if self.num_buckets < 4 or self.num_buckets % 2:
            raise ConfigError(
                "num_buckets of positions: relative_bias must be even and >= 4, got "
                f"{self.num_buckets}"
            )
        if self.max_distance <= self.num_buckets // 2:
            raise ConfigError(
                f"max_distance must be > num_buckets / 2 = {self.num_buckets // 2}, up to which "
                f"each distance has a bucket of its own, got {self.max_distance}"
            )

    def _check_convolutions(self) -> None:
        convolves = {self.encoder_mixing, self.decoder_mixing}.intersection(CONVOLUTIONS)
        for name in ("conv_input_dropout", "kernel_dropout"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"{name} must be in [0, 1), got {value}")
            if value and not convolves:
                raise ConfigError(
                    f"{name} needs encoder_mixing or decoder_mixing to be one of {CONVOLUTIONS}, "
                    f"got {self.encoder_mixing!r} and {self.decoder_mixing!r}"
                )
        for side in ("encoder", "decoder"):
            self._check_kernel_sizes(side)
            mixing = getattr(self, f"{side}_mixing")
            if mixing != "attention" and self.positions in ("relative", "relative_bias", "rotary"):
                raise ConfigError(
                    f"positions: {self.positions} is part of self-attention, which {side}_mixing: "
                    f"{mixing} replaces; use positions: sinusoid"
                )
        if not convolves:
            if not self.kernel_softmax:
                raise ConfigError(
                    "kernel_softmax: false needs encoder_mixing or decoder_mixing to be one of "
                    f"{CONVOLUTIONS}, got {self.encoder_mixing!r} and {self.decoder_mixing!r}"
                )
            return
        if self.share_layers:
            raise ConfigError(
                "share_layers: true has one layer for all steps, and convolutions differ in width "
                f"from layer to layer, got encoder_mixing: {self.encoder_mixing} and "
                f"decoder_mixing: {self.decoder_mixing}; set share_layers: false"
            )
        if self.block == "weighted" and self.encoder_mixing != "attention":
            raise ConfigError(
                "block: weighted gives heads of the encoder's attention feed-forwards and needs "
                f"encoder_mixing: attention, got {self.encoder_mixing}; change one of them"
            )

    def _check_kernel_sizes(self, side: str) -> None:
        name, mixing = f"{side}_kernel_sizes", getattr(self, f"{side}_mixing")
        given, layers = getattr(self, name), getattr(self, f"num_{side}_layers")
        if given and mixing not in CONVOLUTIONS:
            raise ConfigError(
                f"{name} needs {side}_mixing to be one of {CONVOLUTIONS}, got {mixing!r}"
            )
        if given and len(given) != layers:
            raise ConfigError(
                f"{name} must have one width for each of num_{side}_layers = {layers} layers, got "
                f"{list(given)}"
            )
        for width in given:
            if width < 3 or width % 2 == 0:
                raise ConfigError(f"{name} must be odd numbers from 3 on, got {width}")

    def kernel_sizes(self, side: str) -> tuple[int, ...]:
        """The widths of the convolutions of a side, one a layer."""
        given: tuple[int, ...] = getattr(self, f"{side}_kernel_sizes")
        layers: int = getattr(self, f"num_{side}_layers")
        return tuple(given) or ((3, 7, 15) + (31,) * layers)[:layers]

    def of_layer(self, number: int) -> TransformerConfig:
        """The configuration of one layer of each side, as if there were no others, where layers
        differ."""
        sizes = {
            f"{side}_kernel_sizes": self.kernel_sizes(side)[number : number + 1]
            for side in ("encoder", "decoder")
            if getattr(self, f"{side}_mixing") in CONVOLUTIONS
        }
        if not sizes:
            return self
        return replace(self, num_encoder_layers=1, num_decoder_layers=1, **sizes)  # type: ignore[arg-type]

    @property
    def head_width(self) -> int:
        return self.head_dim or super().head_width

    @property
    def family(self) -> str:
        """`macaron` for its block; `transformer` for the standard one and one's own."""
        return "macaron" if self.block == "macaron" else "transformer"


@dataclass(frozen=True, kw_only=True)
class JointConfig(ModelConfig):
    """Sizes of a joint-representation model (Li et al. 2020, "Neural Machine Translation with Joint
    Representation"): Reformer-base without encoder layers, Reformer-fast with them.

    `num_encoder_layers` is the depth of the PreNet, `num_decoder_layers` that of the joint layers.
    The defaults follow the authors' code where it and the paper disagree: the paper has
    `embedding_scale="sum"`.
    """

    least_encoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "norm": ("pre",),
        "joint_dropout": ("shared", "ordinary"),
        "positions": ("sinusoid",),
    }
    decoding_budget: ClassVar[int] = 131072

    architecture: str = "joint"
    tie_embeddings: bool = True
    """One embedding for source, target and output; the authors have three."""
    joint_dropout: str = "shared"
    """`shared`: noise of the joint layers is shared along source or target or both (dropout 1d and
    2d, section 3.4 of the paper); `ordinary`: each element has its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fix_norm and not self.tie_embeddings:
            raise ConfigError(
                "fix_norm needs tie_embeddings: true, since its vectors are those of the output "
                "matrix, got tie_embeddings: false; change one of them"
            )

    @property
    def family(self) -> str:
        return "joint"

    def batch_cost(self, source_length: int, target_length: int) -> int:
        """Cells of one row: a joint model keeps a state for each pair of positions."""
        return source_length * target_length


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig(ModelConfig):
    """Sizes of a decoder-only language model with the attention of Wang et al. 2020, "Transformer
    on a Diet".

    `norm="post"` is the paper's (with a norm after the embedding, as in the authors' code),
    `"none"` what their published commands ran, `"pre"` today's custom. `dropout` is their
    dropout_h.
    """

    least_encoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "norm": ("pre", "post", "none"),
        "block": ("standard", "macaron"),
        "attention": ATTENTIONS,
        "positions": ("sinusoid", "gluon", "relative", "rotary", "learnt"),
        "rotary_scaling": ("none", "linear", "llama3"),
        "dropout_layers": ("all", "reference"),
    }

    architecture: str = "lm"
    num_encoder_layers: int = 0
    block: str = "standard"
    """`standard`, or `macaron`: two half feed-forwards around the attention."""
    attention: str = "full"
    """`full`, `dilated`, `dilated_memory` or `cascade`; see `light_attention.layer_offsets`."""
    kernel_size: int = 3
    """Positions that each dilation sees, dilated attention."""
    dilation_base: int = 2
    """The dilation of layer l, from 0, is dilation_base^l."""
    first_window: int = 4
    """Positions that the first layer sees, itself included, cascade attention."""
    window_multiplier: int = 2
    """The window of layer l, from 0, is first_window * window_multiplier^l."""
    positions: str = "sinusoid"
    """As in all models; `gluon`: the authors' code, whose columns do not pair up; or `learnt`: a
    table of `max_positions` rows."""
    max_positions: int = 0
    """Positions of a `learnt` table, which bounds prompt and output together; 0 for all others,
    whose length is open."""
    rotary_base: float = 10000.0
    """Of `rotary` positions: the last features of a head turn once in 2 pi times this many
    positions, nearly."""
    rotary_scaling: str = "none"
    """How much slower rotary positions turn for longer texts than training had: `linear`, all by
    `rotary_factor`; `llama3`, those that turn at most `rotary_low_factor` times in
    `rotary_trained_length` positions, and others in part, up to `rotary_high_factor` times."""
    rotary_factor: float = 1.0
    rotary_low_factor: float = 1.0
    rotary_high_factor: float = 4.0
    rotary_trained_length: int = 8192
    num_kv_heads: int = 0
    """Heads of keys and values, each of which as many heads of queries share (grouped-query
    attention; Ainslie et al. 2023); 0 is `num_heads`, each its own."""
    attention_bias: bool = True
    """Biases in the projections of attention; the authors have none."""
    ffn_bias: bool = True
    """Biases in the feed-forward."""
    tie_embeddings: bool = True
    """One matrix for the embedding and the output."""
    output_bias: bool = False
    """A bias beside the output matrix; the authors have one."""
    output_dropout: float = 0.0
    """On the states that the output matrix multiplies."""
    dropout_layers: str = "all"
    """`all`, or `reference`: the last layer drops nothing, as in the authors' code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_encoder_layers:
            raise ConfigError(
                "num_encoder_layers of a language model must be 0, got "
                f"{self.num_encoder_layers}; its depth is num_decoder_layers"
            )
        for name in ("kernel_size", "dilation_base", "first_window", "window_multiplier"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.positions == "relative" and self.attention != "full":
            raise ConfigError(
                "positions: relative needs attention: full, as sparse attention has no place for "
                f"its vectors, got attention: {self.attention}; use positions: rotary"
            )
        if not 0.0 <= self.output_dropout < 1.0:
            raise ConfigError(f"output_dropout must be in [0, 1), got {self.output_dropout}")
        self._check_positions()
        self._check_matrices()

    def _check_positions(self) -> None:
        """Raise ConfigError for sizes of positions that are not there."""
        if (self.positions == "learnt") != (self.max_positions > 0) or self.max_positions < 0:
            raise ConfigError(
                "max_positions must be > 0 for positions 'learnt' and 0 for others, got "
                f"{self.max_positions} for {self.positions!r}"
            )
        if not self.rotary_base > 1.0:
            raise ConfigError(f"rotary_base must be > 1, got {self.rotary_base}")
        if self.rotary_scaling == "none":
            return
        if self.positions != "rotary":
            raise ConfigError(
                f"rotary_scaling: {self.rotary_scaling} is of positions: rotary, got positions: "
                f"{self.positions}; set rotary_scaling: none"
            )
        if not self.rotary_factor >= 1.0:
            raise ConfigError(f"rotary_factor must be >= 1, got {self.rotary_factor}")
        if not 0.0 < self.rotary_low_factor < self.rotary_high_factor:
            raise ConfigError(
                "rotary_low_factor must be > 0 and less than rotary_high_factor, got "
                f"{self.rotary_low_factor} and {self.rotary_high_factor}"
            )
        if self.rotary_trained_length < 1:
            raise ConfigError(
                f"rotary_trained_length must be >= 1, got {self.rotary_trained_length}"
            )

    def _check_matrices(self) -> None:
        """Raise ConfigError for matrices that do not fit one another."""
        if self.num_kv_heads < 0 or self.num_heads % self.kv_heads:
            raise ConfigError(
                f"num_kv_heads must be 0 or divide num_heads = {self.num_heads}, got "
                f"{self.num_kv_heads}"
            )
        if self.kv_heads != self.num_heads and self.positions == "relative":
            raise ConfigError(
                "positions: relative has no place for grouped queries, got num_kv_heads: "
                f"{self.num_kv_heads}; use positions: rotary"
            )
        if self.fix_norm and not self.tie_embeddings:
            raise ConfigError(
                "fix_norm needs tie_embeddings: true, since its vectors are those of the output "
                "matrix, got tie_embeddings: false; change one of them"
            )

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def family(self) -> str:
        return "lm"


@dataclass(frozen=True, kw_only=True)
class BertConfig(ModelConfig):
    """Sizes of a bidirectional encoder (Devlin et al. 2019), standard or Macaron (Lu et al. 2019).

    The defaults are those of BERT, which the Macaron paper names as its setting; the presets
    `*_released` are what the authors' published code ran. Where paper and code disagree there is an
    option: `norm`, `norm_affine`, `positions`, `max_positions`, `embedding_scale`,
    `first_activation`, `attention_init` (with the feed-forward's), `output_bias`, `pooler`.
    """

    least_decoder_layers: ClassVar[int] = 0
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = ModelConfig.choices | {
        "first_activation": ModelConfig.choices["activation"],
        "attention_init": ("normal", "xavier", "small", "kaiming"),
        "positions": ("learnt", "sinusoid"),
        "pooler": ("tanh", "none"),
    }

    architecture: str = "bert"
    num_decoder_layers: int = 0
    block: str = "standard"
    """As in a `TransformerConfig`; of a pair of one's own the encoder layer alone is used."""
    norm: str = "post"
    norm_eps: float = 1e-12
    norm_affine: bool = True
    """Gains and biases in the norms of embedding and layers, of `norm_type` `layer` or `rms`."""
    activation: str = "gelu"
    first_activation: str = "gelu"
    """Of the first of a Macaron layer's feed-forwards: the released code has `relu` there, and
    GELU in the second."""
    attention_dropout: float = 0.1
    embedding_scale: str = "none"
    attention_init: str = "normal"
    """`normal`: all weights from N(0, 0.02), as BERT; `kaiming`: attention from
    N(0, model_dim^-0.5) and feed-forwards by Kaiming's rule, as the released code; or as in other
    models."""
    positions: str = "learnt"
    """`learnt`: a table of `max_positions` vectors; `sinusoid`: computed."""
    max_positions: int = 512
    """Longest input in ids, special ones included."""
    num_segments: int = 2
    """Kinds of parts that have a vector of their own, which their tokens add; 0 is none."""
    pooler: str = "tanh"
    """`tanh`: a dense layer with tanh between the first token's state and what is told of a whole
    input; `none`: nothing is."""
    output_bias: bool = True
    """A bias beside the output matrix, which is the embedding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_block(self.block)
        if self.num_decoder_layers:
            raise ConfigError(
                f"num_decoder_layers of an encoder must be 0, got {self.num_decoder_layers}; its "
                "depth is num_encoder_layers"
            )
        for name, low in (("max_positions", 2), ("num_segments", 0)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        if self.norm_type == "scale" and not self.norm_affine:
            raise ConfigError(
                "norm_affine: false needs norm_type 'layer' or 'rms', got 'scale', whose one gain "
                "is all of it; change one of them"
            )

    @property
    def family(self) -> str:
        return "bert"


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(BertConfig):
    """Sizes of an encoder that gives a text, or two, a logit for each class."""

    architecture: str = "classifier"
    num_classes: int = 2
    """A single one is what regression has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes < 1:
            raise ConfigError(f"num_classes must be >= 1, got {self.num_classes}")


@dataclass(frozen=True, kw_only=True)
class EmbedderConfig(BertConfig):
    """Sizes of an encoder that gives a text a vector."""

    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = BertConfig.choices | {
        "pooling": ("cls", "mean"),
    }

    architecture: str = "embedder"
    pooling: str = "mean"
    """`cls`: the first token's state; `mean`: that of all tokens."""
    normalised: bool = True
    """Vectors of length one."""


ARCHITECTURES: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "joint": JointConfig,
    "lm": LanguageModelConfig,
    "bert": BertConfig,
    "classifier": ClassifierConfig,
    "embedder": EmbedderConfig,
}
