
Ph
@Pâ"2*named:
@Pâ"3:
@Pâ"4 :
@Pâ	2first2
@Pâ
2
@
PZHXºa
@PZHXºb
@PZHXºc
@PZHXºd
,@PZ&"2by eventRname2MXºthread_name
-@PZ'"2	outrankedRname2MXºthread_name
-@PZ'"2too lateRname2MXºprocess_name