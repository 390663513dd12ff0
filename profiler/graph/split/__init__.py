"""Operations in parts, the way compilers of accelerators cut them: `files.split_files`, `model`."""
