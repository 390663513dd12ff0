
@Pâ2old
@Pâ"2*
old thread(
@
PZHXºa
@Pâ"2*
new thread(
@PZHXºb
@Pâ2new
@Pâ"3*newer thread
@ PZHXºc
@!PZHXºd
@"PZHXºe