"""Primitive polynomials and first direction numbers of Sobol's points, as data.

They are the first 161 dimensions of S. Joe and F. Y. Kuo, Constructing Sobol sequences with better two-dimensional projections,
SIAM Journal on Scientific Computing 30 (2008), 2635-2654: their file new-joe-kuo-6.21201, which SciPy has too.
Copyright (c) 2008, Frances Y. Kuo and Stephen Joe, all rights reserved; licence BSD-3-Clause.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 161
_NUMBERS = (
    r"c-rk(ZDd?&6h7xYbLTb2HO3et#)uIyB4R{DMZ~BP6%|nx5fM=l6%kcYQ4u4mDppig)vBndT2)p35s@ENRgoW6Q4tlfqN1YKS`kqZ(S7c@call6%d%^Kti9L!"
    r"bv~Z+ob$f-&K)KpOHpzuK~+>sb(E)b)Jknsq&~VrS80^S=oU@WUAjlJ^b<X&MS4ST={>E|8hxSPXotShA!WFp8@Q7Pc#wy9n6L94p5bTwj#qe__c(6SCTki@"
    r"lj$`BX4qUa<7U#_F%QfW^VGaF3+A<1F(1u_*)#hlAxWv08flbP>5@LVA|o;?V^Wgaa#!YMQI_Sse2_I+mo51!2NDUTL%C2xXee|oG!^<Gv=sUj+79i8zK2|="
    r"%BgW0oi?ZF^f)8VZRf7@(3x|VoiENe=fFvXli}L%xo|Pu748e)441;w;rZ~}@M?H7d>BsIjLq5>d%<?vZrf`I?WCQt_w6gYVR!AmW%~dAd$)H9Zf`CXa$k1b"
    r"%Kd4nRM<;}U8VM<l+VQC3QRtMSIOlxtFzoH*MDq#T6)&@WW>|?p7r!ANP)GZw?$*LV?0l0RqwBk*S12-f!-cTC6L<yU5@a|p1#(P>9cYaMULzw@b%GbfM5gb"
    r"G7qOBjy=NnQOl7kxk_Lo!K%#LIdMwL>*Ht~U^zh~dsIRHB)W<l4LC<A21yLJqwh%<5?ANGrMHqGy9j#EGKxE<(IaXXt;osq^n1_7DvGNs2P13q-^q?5aeyAx"
    r"SgcY(V;x1K#?;T}5YygOZUUW`oyXe-Oj&2Xv}|G3BNAA+LFLQr{9TA??*@7L_3(K|)aK+Bhc=-xs-a6#T746g3h*M3B$SPd-<_1=rh+W0aYvy~LX%Jwzosdm"
    r"rZHw<6Nk==oPcc#tqRsrNK=qi>&|-C957D@rzWi^Db2vgO=wl4@Q)}v58Y8&L}OQjQ8L)c7_6!TNgTZwA*yxpJmTuhs`KidhQ11ss&J<j*$tjaS9zsioe1iX"
    r")LQ@f)d-75cvj(e*{ekjW;K}CX-yLvx0RYH3t1a}zg?`NRIk;K!Z(XJIn3+9t)M+)9mANR2KalJdH7r1oqF^I&Al137Oc}i70jZ*ZG?yaB;<hW>1xp8(4NCs"
    r"4_z%<4mf$`QNTP7ERR_RJo2z?fu;#KEm$StmjY@X`W&KU&=-K*f<6OX0xhoDw*k}3fi>qUSR{ebrd7_tU+Ax0SE(J?%`~E{+O>9d8l@e)CJ-x&R-jJ0K$qye"
    r"a_Xfn8prog3$mMlZyw)8-nlD4R!5iV8vJuK3BB*(!eauqH!vH6tU$xi#n9hG=93tU@Xk>Ou)8&L7g0Mf6XcYIXMuWxC)In-uYk*CWL>~G1pgus8t{cyq<&On"
    r"2q+mUAzG3K&`%=f5N!MP+%_Sz^E3#%9IWz?j03R`8MH#uhB|b^egc{p{d3nIIPW7?11k3cUyh4lo~F<A3ga5xrWg9Qyox-wk>fONVjp|p(FJY?^nkvDVTpEW"
    r"fj&aNg7tG~U7A5=t-u&XCDW+#J;-j+JIHqEHEMJn-=a5=%@#cN5wD2-sYh-J?2)&F1A6{mfKe~j5#WuWLPc0S(y!hXJ(H`@j?f*<-yq%rT|^#pK=SrvmhMBp"
    r"3-l#e9MVHz41<3XvO)Uyu1#*I9^T~z8sQTEjNIplxt5E3i#9k)+gzewDa*fbFK6i`&U7O`pvS05jK}B+U!)~|%Q2eZEq=-UT*tH6nRVo~$?M2*6WOf;J3<9s"
    r"p&fqAPw~~Cr#W83xf#Wm{R?<ZA^&lHM$3p&WQV6v`)yj}1@@kyd7i_#LDPJRH{o|cCEn-Ph`)^ZL!9C_kSwEu&0vt=Jpah_pSj-SpHGkZMxXHyCn?WpT1wO<"
    r"HMGW4+|4=j&Me6ceKD;DXG*S{%cj$OFgw!79VEPJ9O=OGvc)MHFik8p%b!fI6y=fZaliR07p2oYLLK{gO_)}to*v6QubAHfP6jZ2"
)


@cache
def directions(dimensions: int, bits: int) -> NDArray[np.int64]:
    """Returns the direction numbers (dimensions, bits), whose digits begin at the highest of so many bits."""
    table = np.frombuffer(zlib.decompress(base64.b85decode(_NUMBERS)), "<u2").reshape(-1, DIMENSIONS).astype(np.int64)
    polynomials, first = table[0, :dimensions], table[1:, :dimensions]
    degrees = np.frexp(polynomials)[1] - 1
    numbers = np.ones((bits, dimensions), np.int64)
    for degree in np.unique(degrees[1:]):
        (of,) = np.nonzero(degrees == degree)
        numbers[:degree, of] = first[:degree, of]
        # m(i) = m(i - s) ^ 2 a(1) m(i - 1) ^ .. ^ 2^s a(s) m(i - s), a: the polynomial's coefficients
        for i in range(degree, bits):
            terms = [(numbers[i - k, of] << k) * (polynomials[of] >> (degree - k) & 1) for k in range(1, degree + 1)]
            numbers[i, of] = np.bitwise_xor.reduce([numbers[i - degree, of], *terms])
    found = numbers.T << np.arange(bits)[::-1]
    found.flags.writeable = False
    return found
