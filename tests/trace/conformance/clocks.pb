
2
è
ˆ'
 ÷6@d
2
ð.
	@ èPhÚÐ@
 @PZHºone microsecond later
@PZH
@ü*PZHº	boot timeÐ
@Üü6PZHº	real timeÐ
@ˆPZHº
trace time
2
 œ
ðý9@Ð
)@Ôþ9PZHºafter the second snapshotÐ
Ph
@°êPZHºdefault gone