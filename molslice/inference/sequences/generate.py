"""Continue a text with a trained language model."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from molslice.data.text.lexicon import Lexicon
from molslice.files.progress import Progress
from molslice.inference.load import NetworkPredictor
from molslice.inference.precision import float32_inference
from molslice.model.sequences.language import LanguageModel
from molslice.types import MolsliceError


@dataclass(frozen=True, slots=True)
class Generation:
    """A continued text.

    Attributes:
        prompt: The prompt.
        continuation: The generated text.
        numbers: The generated tokens as indices into the vocabulary.
        unknown: The words of the prompt that are not in the vocabulary; the model reads `<unk>` for them.
        forgotten: Number of tokens at the start that were outside of the model's window at the end.
    """

    prompt: str
    continuation: str
    numbers: tuple[int, ...]
    unknown: tuple[str, ...]
    forgotten: int

    @property
    def text(self) -> str:
        """The prompt and its continuation."""
        return f"{self.prompt}{self.continuation}"


def generate(
    predictor: NetworkPredictor,
    prompt: str = "",
    tokens: int = 50,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Generation:
    """Generate tokens one by one.

    A model with `n` positions reads at most n tokens. When the text becomes longer, the window restarts at
    its last half. An attention with a step form keeps a state; other attentions read the whole window for
    each new token. Both give the same text.

    Args:
        predictor: A language model.
        prompt: The text to continue. An empty prompt is the beginning of a line.
        tokens: Number of tokens to generate, at least 1.
        temperature: Divisor of the logits, not negative. 0 always takes the most probable token.
        top_k: Draw only from the k most probable tokens, at least 1; None draws from all.
        seed: Seed of the random draws.
        progress: Whether to show a bar on standard error.

    Returns:
        The text and the generated tokens.

    Raises:
        MolsliceError: The model is not a language model, its tokens do not fit its weights, or the prompt has
            no UTF-8 form.
    """
    model = predictor.model
    if not isinstance(model, LanguageModel):
        raise MolsliceError(f"{predictor.name} is not a language model: it predicts {predictor.target_names}")
    lexicon = Lexicon.from_mapping(predictor.metadata.get("lexicon"))
    if len(lexicon) > (size := predictor.data.vocabulary_size or 0):
        raise MolsliceError(f"{predictor.name} names {len(lexicon)} tokens, but its weights are for {size}")
    try:
        numbers = lexicon.encode(prompt) or [lexicon.line_end]
    except UnicodeEncodeError as error:
        raise MolsliceError(f"the prompt has no UTF-8 form: {error.reason}") from error
    given = len(numbers)
    generator = torch.Generator().manual_seed(seed)
    with float32_inference(predictor.device), Progress("generate", tokens, "tokens", shown=progress) as bar:
        for logits in _logits(model, numbers, predictor.device):
            # embedding rows without a word are never drawn
            chosen = _choose(logits[: len(lexicon)].double().cpu(), temperature, top_k, generator)
            numbers.append(chosen)
            bar.update()
            if len(numbers) == given + tokens:
                break
    generated = numbers[given:]
    apart = lexicon.kind == "words" and prompt != "" and not prompt[-1].isspace()
    text = lexicon.decode(generated)
    continuation = f" {text}" if apart and not text.startswith("\n") else text
    forgotten = _window_start(len(numbers) - 1, model.embedding.max_tokens)
    return Generation(prompt, continuation, tuple(generated), tuple(lexicon.unknown(prompt)), forgotten)


def _logits(model: LanguageModel, numbers: Sequence[int], device: torch.device) -> Iterator[Tensor]:
    """Yield logits [V] of the token after `numbers`, each time the caller has appended to them."""
    longest, start, read, state = model.embedding.max_tokens, -1, 0, None
    while True:
        begin = _window_start(len(numbers), longest)
        if not model.has_steps:
            yield model.following(torch.tensor([numbers[begin:]], device=device))[0]
            continue
        if begin != start or state is None:
            start, read, state = begin, begin, model.init_state(1)
        logits = None
        for number in numbers[read:]:
            logits, state = model.step(torch.tensor([number], device=device), state)
        assert logits is not None  # at least one token is new
        read = len(numbers)
        yield logits[0]


def _window_start(count: int, longest: int) -> int:
    """Return the first of `count` tokens that a model with `longest` positions reads."""
    if count <= longest:
        return 0
    hop = longest + 1 - max(1, longest // 2)  # when one token is too many, keep the last half
    return math.ceil((count - longest) / hop) * hop


def _choose(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    likely, places = logits.topk(min(top_k or len(logits), len(logits)))
    shares = ((likely - likely[0]) / temperature).softmax(0)
    return int(places[torch.multinomial(shares, 1, generator=generator)])
