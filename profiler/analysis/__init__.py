"""Analysis: one file for each question, from its columns to its findings and section."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "commands": "CommandArrays kinds_of",
        "context": "Inputs Selection",
        "device_profiles": "DeviceProfile",
        "document": "Report SURFACE submodule_colours",
        "end_to_end": "account",
        "finding_text": "rules words",
        "findings": "find",
        "flop_shapes": "parse_shapes",
        "flops": "call_costs kind_work work_of",
        "idle_causes": "WaitCause",
        "overview": "change extent key_facts",
        "question": "table_named tables",
        "result": "Analysis Finding ReportInput Where",
        "roles": "with_roles",
        "roofline": "Bound",
        "table_text": "pattern worded_note",
        "run_headline": "headline",
        "timeline": "Axis PipelineCalls",
    },
)
