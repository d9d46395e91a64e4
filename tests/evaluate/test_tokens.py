import pytest

from tests.evaluate.tiny import tiny_tokenizer
from tilepress.evaluate import beginning, check_same_tokenizer, tokenize

TEXT = "A text, of\n\n two lines.\n"


@pytest.mark.parametrize("adds_bos", [False, True])
def test_a_text_is_tokenised_whole_and_raw(adds_bos):
    tokenizer = tiny_tokenizer(bos=adds_bos)
    tokens = tokenize(tokenizer, TEXT)
    assert tokenizer.decode(tokens) == TEXT


@pytest.mark.parametrize("adds_bos", [False, True])
def test_windows_begin_as_the_tokenizer_begins_a_text(adds_bos):
    tokenizer = tiny_tokenizer(bos=adds_bos)
    token = tokenizer.bos_token_id
    assert (beginning(tokenizer), beginning(tokenizer, True)) == (token if adds_bos else None, token)
    assert beginning(tokenizer, False) is None


def test_a_beginning_that_the_tokenizer_has_not_is_refused():
    tokenizer = tiny_tokenizer()
    tokenizer.bos_token = None
    with pytest.raises(ValueError, match="no token for the beginning of a text; leave --bos out"):
        beginning(tokenizer, True)
    assert beginning(tokenizer) is None


@pytest.mark.parametrize("text", ["", "a"])
def test_fewer_than_two_tokens_are_refused(tokenizer, text):
    with pytest.raises(ValueError, match=rf"the text has {len(text)} token\(s\), and at least 2 are needed"):
        tokenize(tokenizer, text)


def test_tokenizers_that_differ_are_refused(tokenizer):
    check_same_tokenizer(tokenizer, tiny_tokenizer(bos=True), TEXT)
    other = tiny_tokenizer()
    other.add_tokens(["of"])
    with pytest.raises(ValueError, match=r"cut this text into different tokens.*has the same tokenizer"):
        check_same_tokenizer(tokenizer, other, TEXT)
