"""What an answer costs in US dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resumable_nb.llm import embedded


def price(
    model: str, input_tokens: int, output_tokens: int, table: Mapping[str, Sequence[float]] | None = None
) -> float | None:
    """US dollars; None if nobody knows. The table goes first, then the package `genai-prices` if it is installed.

    Args:
        model: that answered.
        input_tokens: of all its answers.
        output_tokens: as these.
        table: model → US dollars for a million tokens of input and of output.
    """
    if table and model in table:
        into, out = table[model]
        return (input_tokens * into + output_tokens * out) / 1e6
    if model == embedded.EMBEDDED_MODEL:
        return 0.0
    try:
        import genai_prices

        usage = genai_prices.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return float(genai_prices.calc_price(usage, model_ref=model).total_price)
    except (ImportError, LookupError):
        return None
