
'@
PZHºnumber bÚinternedh
@PZHºtextªtext
@PZHºinterned°
@PZHºunknown°