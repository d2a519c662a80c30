"""Questions as clinicians type them about `clinical_chart`, with the results of those that are answered."""

from __future__ import annotations

EXACT = """
latest bicarb => 25 mmol/L
what was her last bicarbonate => 25 mmol/L
What was her last bicarbonate? => 25 mmol/L
last bicarb => 25 mmol/L
last HCO3 => 25 mmol/L
most recent serum bicarb => 25 mmol/L
bicarbonate 2150-09-11 => 16 mmol/L
last Cr => 1.3 mg/dL
latest creat => 1.3 mg/dL
Cr trend => rose: 1.1 to 1.3 mg/dL
last K => 4.6 mmol/L
last K+ => 4.6 mmol/L
K+ trend => rose: 4.1 to 4.6 mmol/L
latest potassium => 4.6 mmol/L
creatinine before the last admission => 1.1 mg/dL; 1.9 mg/dL
max WBC last admission => 18.3 10*3/uL
highest WBC during the last admission => 18.3 10*3/uL
highest wbc during her first hospitalization => 14.8 10*3/uL
lowest Hgb during the last admission => 8.4 g/dL
nadir Hgb => 8.4 g/dL
highest systolic => 142 mm[Hg]
last BP => systolic 142 mm[Hg] and diastolic 84 mm[Hg]
last blood pressure => systolic 142 mm[Hg] and diastolic 84 mm[Hg]
what is her BP now? => systolic 142 mm[Hg] and diastolic 84 mm[Hg]
WBC in September 2150 => 18.3 10*3/uL; 9.1 10*3/uL
WBC in sept 2150 => 18.3 10*3/uL; 9.1 10*3/uL
what was his hgb in 2150 => 13.2 g/dL; 11.0 g/dL; 8.4 g/dL; 9.9 g/dL
weight change since March 2150 => +1 kg
weight trend => rose: 80.5 to 82 kg
is she on metformin? => Metformin 500 MG Oral Tablet
is pt on metformin => Metformin 500 MG Oral Tablet
is she taking warfarin => no entry
does she still take warfarin? => no entry
does she take lisinopril => no entry
is she still on lisinopril? => no entry
when was lisinopril d/c'd => 2150-09-12
when was lisinopril discontinued => 2150-09-12
when did she stop warfarin => 2150-06-05
when was metformin started => 2149-05-01
when did she start metformin? => 2149-05-01
when was apixaban begun => 2150-06-05
current meds => Metformin 500 MG Oral Tablet; Atorvastatin 40 MG Oral Tablet; Apixaban 5 MG Oral Tablet
what meds is he taking => Metformin 500 MG Oral Tablet; Atorvastatin 40 MG Oral Tablet; Apixaban 5 MG Oral Tablet
was she on warfarin in 2149 => no entry
has she ever had a DVT => yes
has she ever had a deep vein thrombosis? => yes
hx of DVT? => yes
history of DVT => yes
any hx of DVT => yes
h/o DVT => yes
any history of deep vein thrombosis? => yes
ever had a PE? => no entry
has she ever had a stroke? => no entry
does she have diabetes => Type 2 diabetes mellitus
does he have HTN => Hypertension
does she have hypertension? => Hypertension
does she have AKI => no entry
active problems => Hypertension; Type 2 diabetes mellitus
problem list => Hypertension; Type 2 diabetes mellitus; Deep vein thrombosis of left leg; Acute kidney injury
when was the DVT diagnosed => 2150-03-03
when was diabetes diagnosed => 2149-05-01
when was she diagnosed with type 2 diabetes => 2149-05-01
allergies? => Penicillin
allergic to pcn => yes
allergic to penicillin? => yes
any allergies => Penicillin
PCN allergy? => yes
does she have a latex allergy => no entry
when was her last colonoscopy => 2148-11-02
last colonoscopy => 2148-11-02
when was her last flu shot => 2150-10-20
did she get a flu shot in 2150 => yes
how many flu shots has she had => 2
potassium after the colonoscopy => 4.1 mmol/L; 5.6 mmol/L; 3.4 mmol/L; 4.4 mmol/L; 4.6 mmol/L
creatinine since the colonoscopy => 1.1 mg/dL; 1.9 mg/dL; 2.4 mg/dL; 1.6 mg/dL; 1.3 mg/dL
last potassium before 2150-09-10 => 5.6 mmol/L
first creatinine of the second admission => 2.4 mg/dL
highest potassium and when => 5.6 mmol/L
when was the highest creatinine => 2.4 mg/dL
when was potassium last checked => 4.6 mmol/L
when was the last potassium drawn => 4.6 mmol/L
trend WBC during the 2nd admission => fell: 18.3 to 9.1 10*3/uL
WBC from 2150-09-10 to 2150-09-20 => 18.3 10*3/uL; 9.1 10*3/uL
last HR => 76 /min
Is she on Eliquis? => Apixaban 5 MG Oral Tablet
is he taking coumadin => no entry
when was Coumadin stopped => 2150-06-05
is she on Lipitor => Atorvastatin 40 MG Oral Tablet
has she ever taken Glucophage => yes
has she ever had influenza => no entry
has she ever had the flu => no entry
has she ever had pneumonia => no entry
has she ever had shingles => no entry
does she have T2DM => Type 2 diabetes mellitus
is she on NTG => no entry
is she on ASA => no entry
has she ever had an EGD => no entry
has she ever had TKR => no entry
has she ever had a CABG => no entry
when was the last IVC filter => 2150-03-04
is she allergic to Bactrim => no entry
is she allergic to Augmentin => no entry
is she allergic to amoxicillin => no entry
is pt still on warfarin? => no entry
creatinine since the last admission => 2.4 mg/dL; 1.6 mg/dL; 1.3 mg/dL
highest K during last admission => 4.4 mmol/L
last admission's highest K => 4.4 mmol/L
lowest K ever => 3.4 mmol/L
highest ever creatinine => 2.4 mg/dL
highest potassium ever => 5.6 mmol/L
first ever WBC => 7.2 10*3/uL
HR in 2150 => 72 /min; 96 /min; 118 /min; 84 /min
white count last admission => 18.3 10*3/uL; 9.1 10*3/uL
sbp trend => rose: 138 to 142 mm[Hg]
dbp trend in 2150 => fell: 80 to 64 mm[Hg]
bp trend => no direction
BP on 2150-09-11 => 88 mm[Hg]; 50 mm[Hg]
BP during the last admission => 88 mm[Hg]; 50 mm[Hg]; 118 mm[Hg]; 64 mm[Hg]
how many colonoscopies => 1
how many times was creatinine checked in 2150 => 4
how many creatinines => 5
number of potassium values in 2150 => 4
how often was Hgb measured => 5
how many meds is she on => Metformin 500 MG Oral Tablet; Atorvastatin 40 MG Oral Tablet; Apixaban 5 MG Oral Tablet
how many problems => 4
creatinine 2150-09-10 to 2150-09-20 => 2.4 mg/dL; 1.6 mg/dL
creatinine by 2150-09-11 => 1.1 mg/dL; 1.9 mg/dL; 2.4 mg/dL
creatinine up to 2150-09-11 => 1.1 mg/dL; 1.9 mg/dL; 2.4 mg/dL
creatinine until 2150-09-11 => 1.1 mg/dL; 1.9 mg/dL; 2.4 mg/dL
creatinine prior to 2150-09-11 => 1.1 mg/dL; 1.9 mg/dL
creatinine from 2150-09-11 => 2.4 mg/dL
creatinine since 2150-09-11 => 2.4 mg/dL; 1.6 mg/dL; 1.3 mg/dL
change in creatinine between 2150-03-02 and 2150-09-11 => +0.5 mg/dL
is there a history of falls => no entry
does she have left leg DVT => no entry
is she on metoprolol => no entry
has she ever been on warfarin => yes
has she ever been on heparin => no entry
any surgeries in 2150 => Insertion of inferior vena cava filter
what surgeries has she had => Colonoscopy; Insertion of inferior vena cava filter
list procedures => Colonoscopy; Insertion of inferior vena cava filter
last procedure => 2150-03-04
first procedure => 2148-11-02
most recent procedure => 2150-03-04
last vaccine => 2150-10-20
when was her last vaccine => 2150-10-20
which vaccines has she had => Influenza vaccine
vaccines in 2150 => Influenza vaccine
has she had the covid vaccine => no entry
has she had a tetanus shot => no entry
has she had her pneumonia shot => no entry
peak Cr in 2151 => 1.3 mg/dL
peak cr sept 2150 => 2.4 mg/dL
last K in 2150 => 4.4 mmol/L
last K before the last discharge => 4.4 mmol/L
last K during her last hospital stay => 4.4 mmol/L
what was his K? => 4.6 mmol/L
is warfarin active => no entry
meds in 2149 => Metformin 500 MG Oral Tablet; Lisinopril 10 MG Oral Tablet
was she taking lisinopril on 2150-11-01 => no entry
did she take warfarin in 2150 => yes
did she take warfarin in 2151 => no entry
did she get a flu shot in october 2150 => yes
"""
NOT_ANSWERED = """
bicarb on 9/11/2150
is he on bicarb?
is she on sodium bicarbonate?
when was bicarb started
when was bicarbonate started?
Cr trend past yr
Cr trend past year
Cr over the past year
creatinine over the last 6 months
creatinine in the last year
creatinine in the past 3 months
was K ever over 5?
has potassium ever been above 5.5
was the creatinine ever > 2?
is his potassium normal?
is her creatinine higher than in March?
Is creatinine higher than in May?
is the last creatinine higher than the one before?
creatinine compared to baseline
baseline creatinine
creatinine at discharge
creatinine at last discharge
creatinine on admission
admission creatinine
discharge creatinine
admit Cr
peak Cr this admission
highest WBC this admission
highest WBC during the current admission
what is the highest WBC during this hospitalization
nadir hemoglobin this stay
lowest BP
what's her BP today
latest vitals
last set of vitals
most recent labs
last labs
all labs from yesterday
labs yesterday
creatinine yesterday
creatinine today
potassium this morning
potassium last week
last week's potassium
potassium last month
WBC in September
how much weight has she lost
has she lost weight?
current weight
what is her weight in pounds?
creatinine in umol/L
last creatinine in µmol/l
convert the last creatinine to umol/L
hemoglobin in g/L
last WBC in cells/uL
is he on a statin?
pt on apixaban?
on anticoagulation?
is he anticoagulated
is she on a blood thinner?
was lisinopril stopped?
why was lisinopril stopped?
how long has she been on metformin
how long was she on warfarin
since when is she on apixaban
metformin dose
what dose of metformin is she on?
med list
home meds
home medications
discharge meds
meds on admission
meds at discharge
was she on warfarin on 2150-04-01?
is she not on warfarin?
isn't she on warfarin?
she is not on metformin, right?
no metformin?
has she never been on warfarin
never had a DVT?
prior MI?
diabetic?
is she diabetic?
does she have CKD
PMH
pmhx
past medical history
when was her DVT
NKDA?
is she allergic to sulfa
does she have any drug allergies?
has she had a colonoscopy
last scope
IVC filter?
does she have an IVC filter
when was the IVC filter placed
has the ivc filter been removed
is the IVC filter still in
flu shot?
did she get a flu shot this year?
last tetanus
is she vaccinated against influenza
up to date on vaccines?
last creatinine and potassium
BMP
last BMP
CBC
creatinine before and after the IVC filter
last two potassium values
last 3 creatinines
previous creatinine
second to last creatinine
penultimate creatinine
creatinine on hospital day 2
average creatinine
mean HR
median heart rate
average systolic blood pressure in 2150
how many times was potassium over 5
how many admissions
how many times was she hospitalized
when was she last admitted
when was she discharged
last admission
date of last admission
length of stay last admission
is she currently admitted?
is she in the hospital
her mother's creatinine
roommate's potassium
last creatinine of patient in bed 2
what was Mr. Smith's potassium and Mrs. Jones's creatinine
compare her creatinine to her husband's
creatinine for the other patient
when was potassium last repleted
was potassium given
how much potassium did she get
potassium replacement?
should we give potassium
will creatinine improve?
if creatinine was over 2, when?
creatinine not in 2150
creatinine except in 2150
all creatinines except 2.4
creatinine outside the hospital
outpatient creatinine
urine creatinine
urine potassium
creatinine clearance
ionized calcium
last troponin
last Hct
hgb drop
did hgb drop?
did creatinine improve?
is creatinine improving
is creatinine stable
creatinine going up?
tachycardic?
febrile?
was she hypotensive
hypertensive?
pulse
sats
O2 sat
last temp
Tmax
I/O
urine output
has she had an MI
has she ever had a STEMI?
has she ever had an NSTEMI
does she have DM2
does she have HFrEF
does she have MS
has she ever had RA
has she ever had SLE
is she on MTX
is she allergic to ABX
is she allergic to IV contrast
does pt have HTN
Is the pt on warfarin
highest creatinine since admission
creatinine after discharge
highest creatinine since discharge
WBC during admission
WBC while inpatient
what was her creatinine when she started apixaban
creatinine since starting apixaban
creatinine after apixaban was started
potassium while on lisinopril
creatinine on lisinopril
creatinine during warfarin
INR
last INR
Last vitamin K
vitamin K level
when did she get vitamin K
is she on vitamin K
last NA
Na trend
is na ok
rr today
temp now
WBCs
wbc count
what is the potassium in the urine
is K low
low K?
highest sBP this year
what meds did she stop
what meds were stopped
which medications were stopped in 2150
which meds were started in September 2150
what was started during the last admission
new meds
med changes
did she start any meds
any new allergies
when was the penicillin allergy recorded
who diagnosed the DVT
where was the colonoscopy done
what did the colonoscopy show
how many admissions in 2150
creatinine between March and September 2150
creatinine in spring
creatinine around 2150-09-11
creatinine on or after 2150-09-11
creatinine no later than 2150-09-11
creatinine on 2150-09-12
last creatinine on 2150-09-12
last creatinine before 2149-01-01
first creatinine after 2151-01-15
how much did K drop
how much did hgb drop between 2150-01-10 and 2150-09-11
difference between last and first creatinine
difference between creatinine and potassium
ratio of BUN to creatinine
creatinine/potassium
K and creatinine
Na/K
her last potassium and his last creatinine
last creatinine of bed 12
patient's last creatinine, and her daughter's
the baby's bilirubin
fetal heart rate
donor creatinine
maternal heart rate
last heart rate of the fetus
husband's warfarin
is her husband on warfarin
does anyone in the family have diabetes
family history of diabetes
family history of DVT
fh of diabetes
paternal DVT
has she ever smoked
does she smoke
has she ever been pregnant
is she pregnant
has she ever been intubated
was she intubated
has she ever been hospitalized
has she ever fallen
has she ever refused metformin
has she ever needed dialysis
has she ever missed metformin
has metformin ever been held
was metformin held
was warfarin restarted
was warfarin switched to apixaban
was warfarin replaced
did warfarin cause bleeding
can she take metformin
should metformin be stopped
could she have a DVT
does she possibly have a DVT
suspected DVT
r/o DVT
rule out DVT
no DVT?
DVT negative?
was the DVT ruled out
DVT prophylaxis
is she on DVT prophylaxis
has she ever had DVT prophylaxis
does she have right leg DVT
has she ever had a right leg DVT
DVT of the arm ever
has she ever had type 1 diabetes
does she have type 1 diabetes
does she have prediabetes
does she have pulmonary hypertension
has she ever had portal hypertension
is she on metformin 1000 mg
is she on metformin XR
is she on IV metformin
is she on potassium
is she on potassium chloride
is she still on potassium chloride
currently on heparin gtt?
on O2?
is she on room air
is she on a diet
is she on hospice
is she on isolation
is she on the transplant list
is she on call
has she ever had chemo
has she ever had surgery
has she ever had any surgeries
did she have surgery recently
covid vaccine?
list her meds as of 2150-07-01
last metformin
when was the last warfarin
last vit K
24 hr urine
K after replacement
highest K while on KCl
Cr during AKI
first K of each admission
K on the day of admission
latest HR, K
latest bp/hr
K today
last dose of metformin
has warfarin been stopped
was she taking lisinopril on 2150-07-01
"""
