"""The screen of a run, as Snakemake calls its logger plugin."""

import logging

from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_leakbound import LogHandler


def test_the_sentences_of_the_page_come_once_though_snakemake_closes_its_handlers_twice(tmp_path, capfd):
    log = tmp_path / "quick" / "logs" / "report.log"
    log.parent.mkdir(parents=True)
    log.write_text("What came out.\n")
    handler = LogHandler(OutputSettings(), None)
    handler.setFormatter(logging.Formatter())
    started = {"event": LogEvent.JOB_INFO, "rule_name": "report", "jobid": 7, "log": [str(log)]}
    for facts in (started, {"event": LogEvent.JOB_FINISHED, "job_id": 7}):
        handler.emit(logging.makeLogRecord(facts))
    handler.close()
    handler.close()
    said = capfd.readouterr().err
    assert said.count("What came out.\n") == said.count("`make open` shows it.") == 1
