"""Examples in docstrings of what users call run as they stand."""

import doctest
import sys

import pytest

from leakbound import models
from leakbound.papers.pmidp.averaging import train_federation
from leakbound.training import train


@pytest.mark.parametrize("function", [models.build, train, train_federation], ids=lambda function: function.__name__)
def test_the_example_of_a_docstring_gives_what_it_states(function):
    names = dict(vars(sys.modules[function.__module__]))
    example = doctest.DocTestParser().get_doctest(function.__doc__, names, function.__name__, None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
