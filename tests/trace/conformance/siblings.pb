
â
parent
â
name(
â
name(
âown(x
âown(x
âfirst(x‚key
âsecond(x‚key
âthird(xˆ
â(
âname
@
PZHXºa
@PZHXºb

@PZHX
@PZHXºc

@PZHX

@PZHX
@PZHXºd

@PZHX
@PZHXºe
@PZHXºf
@PZHXºg

@PZHX
@PZHXºh
@PZHXºi
@PZHXºnames its track
@PZHXºcomes too late
@PZHXºwithout parent