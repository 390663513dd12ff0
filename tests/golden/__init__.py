"""What the program says today about some fifty bundles, frozen, to be compared byte for byte.

    python -m tests.golden compare [--only PATTERN]
    python -m tests.golden record [--only PATTERN]

`bundles` says which inputs there are and what is asked of each, `questions` asks the command line,
`public` the public names, `page` unpacks pages, `masks` names what may differ, `store` keeps it.
"""
